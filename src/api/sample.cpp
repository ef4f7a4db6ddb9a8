#include <atomic>
#include <cmath>
#include <new>
#include <vector>

#include "api/context_impl.hpp"
#include "core/check.hpp"
#include "core/float16.hpp"
#include "rapt/sampling.hpp"
#include "sampling/sample_row.hpp"

namespace rapt {
namespace {

void validate(const SamplingParams& params, size_t row) {
  check(std::isfinite(params.temperature) && params.temperature >= 0, "temperature of row ", row,
        " is ", params.temperature, ": must be finite and at least 0, which is arg-max");
  check(!std::isnan(params.top_p), "top_p of row ", row, " is NaN: give 1 to turn it off");
  check(params.min_p <= 1, "min_p of row ", row, " is ", params.min_p,
        ": must be at most 1; 0 turns it off");
}

// Row `row` as fp32: a view of the tensor's memory, or `converted` filled from it.
std::span<const float> row_as_float(const TensorView& logits, int64_t row,
                                    std::vector<float>& converted) {
  const auto vocab = static_cast<size_t>(logits.shape[1]);
  const int64_t first = row == 0 ? 0 : row * logits.stride[0];
  if (logits.dtype == DType::kFloat32)
    return {static_cast<const float*>(logits.data) + first, vocab};
  const auto* bits = static_cast<const uint16_t*>(logits.data) + first;
  converted.resize(vocab);
  for (size_t i = 0; i < vocab; i++)
    converted[i] =
        logits.dtype == DType::kFloat16 ? float16_to_float(bits[i]) : bfloat16_to_float(bits[i]);
  return converted;
}

}  // namespace

void sample(Context& context, const TensorView& logits, std::span<const SamplingParams> params,
            std::span<int32_t> tokens, std::span<SampleStatus> statuses) {
  check(logits.rank == 2, "logits is ", logits.describe(), ": must be [rows, vocab]");
  check(logits.dtype == DType::kFloat32 || logits.dtype == DType::kFloat16 ||
            logits.dtype == DType::kBFloat16,
        "logits is ", logits.describe(), ": must be float32, float16 or bfloat16");
  check(logits.device.kind == DeviceKind::kCpu,
        "logits is on a CUDA device: sample() reads host "
        "memory; copy the rows to the host first");
  const int64_t rows = logits.shape[0], vocab = logits.shape[1];
  check(rows >= 0 && rows <= INT32_MAX && vocab >= 0 && vocab <= INT32_MAX, "logits is ",
        logits.describe(), ": rows and vocab must be in [0, ", INT32_MAX, "]");
  check(rows * vocab == 0 || logits.data != nullptr, "logits has no data");
  check(vocab <= 1 || logits.stride[1] == 1, "logits is ", logits.describe(),
        ": the last axis must be contiguous");
  check(reinterpret_cast<uintptr_t>(logits.data) % size_of(logits.dtype) == 0, "logits is at ",
        logits.data, ": must be aligned to its ", size_of(logits.dtype), "-byte elements");
  if (rows > 1)
    checked_mul(checked_mul(rows, logits.stride[0], "logits' rows"),
                static_cast<int64_t>(size_of(logits.dtype)), "logits' rows");
  const auto num_rows = static_cast<size_t>(rows);
  check(params.size() == num_rows && tokens.size() == num_rows && statuses.size() == num_rows,
        "params, tokens and statuses have ", params.size(), ", ", tokens.size(), " and ",
        statuses.size(), " entries: logits has ", rows, " rows, each needs one of each");
  for (size_t row = 0; row < num_rows; row++) validate(params[row], row);

  std::atomic<bool> no_memory = false;  // tasks never throw: the loop may be the caller's
  context.impl().parallel_for(static_cast<int32_t>(rows), [&](int32_t row) {
    try {
      std::vector<float> converted;
      const SampledToken sampled = sample_row(row_as_float(logits, row, converted), params[row]);
      tokens[row] = sampled.token;
      statuses[row] = sampled.status;
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
  });
  if (no_memory)
    fail(ErrorCode::kOutOfMemory, "sample: no memory to sort a row of ", vocab, " logits");
}

}  // namespace rapt
