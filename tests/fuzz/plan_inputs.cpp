#include "fuzz/plan_inputs.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "support/guarded_buffer.hpp"
#include "support/matrix.hpp"

namespace rapt::test {
namespace {

constexpr int32_t kDim = 8, kHeads = 2;
constexpr int64_t kPoolPages = 4;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "plan_bytes: %s\n", what);
  std::abort();
}

// Takes bytes off the front; zeros once there are none.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t byte() { return size_ ? (size_--, *data_++) : 0; }
  // Mostly small numbers, some of any size.
  int32_t number() {
    const uint8_t first = byte();
    if (first < 240) return first % 48;
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits = bits << 8 | byte();
    return static_cast<int32_t>(bits);
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

struct Input {
  int32_t page_size;
  std::vector<int32_t> query_start, kv_len, kv_start, table;
  int64_t width, num_pages;

  explicit Input(Bytes bytes) {
    constexpr int32_t kPageSizes[] = {1, 3, 16, 0};
    page_size = kPageSizes[bytes.byte() % 4];
    const int32_t num_requests = bytes.byte() % 7;
    query_start = {bytes.byte() == 255 ? bytes.number() : 0};
    kv_start = query_start;
    for (int32_t b = 0; b < num_requests; b++) {
      // Sums wrap as the bytes like: a decreasing start is part of the input.
      auto after = [](int32_t start, int32_t more) {
        return static_cast<int32_t>(static_cast<uint32_t>(start) + static_cast<uint32_t>(more));
      };
      query_start.push_back(after(query_start.back(), bytes.number()));
      kv_len.push_back(bytes.number());
      kv_start.push_back(after(kv_start.back(), after(kv_len.back(), bytes.byte() % 3)));
    }
    if (bytes.byte() == 254) query_start.pop_back();
    width = bytes.byte() % 64;
    num_pages = bytes.byte() % 16 ? kPoolPages : bytes.number();
    for (int64_t i = 0; i < num_requests * width; i++)
      table.push_back(bytes.byte() % 64 ? static_cast<int32_t>(i) % int32_t{kPoolPages}
                                        : bytes.number());
  }

  Batch batch() const {
    Batch batch{.query_start = query_start, .kv_len = kv_len};
    if (page_size == 0) {
      batch.kv_start = kv_start;
      return batch;
    }
    batch.page_table = TensorView::contiguous(table.data(), DType::kInt32,
                                              {static_cast<int64_t>(kv_len.size()), width});
    batch.num_pages = num_pages;
    return batch;
  }
};

void run_and_count(const Input& input, const Attention& attention, const Plan& plan) {
  const int64_t tokens = plan.num_tokens();
  const int64_t rows = input.page_size ? kPoolPages * input.page_size : input.kv_start.back();
  const std::vector<float> q(tokens * kHeads * kDim, 1), keys(rows * kDim, 0);
  std::vector<float> out(tokens * kHeads * kDim), lse(kHeads * tokens);
  GuardedBuffer workspace(plan.workspace_bytes(), kWorkspaceAlignment);
  workspace.fill(0xff);
  auto view = [](const std::vector<float>& values, std::initializer_list<int64_t> shape) {
    return TensorView::contiguous(values.data(), DType::kFloat32, shape);
  };
  const TensorView pool = input.page_size ? view(keys, {kPoolPages, input.page_size, 1, kDim})
                                          : view(keys, {rows, 1, kDim});
  attention.run(plan, {.q = view(q, {tokens, kHeads, kDim}),
                       .k = pool,
                       .v = pool,
                       .out = view(out, {tokens, kHeads, kDim}),
                       .lse = view(lse, {kHeads, tokens}),
                       .workspace = {workspace.data(), workspace.size()}});
  require(workspace.slack_holds(0xff), "written outside the workspace");
  for (size_t b = 0; b < input.kv_len.size(); b++)
    for (int32_t t = input.query_start[b]; t < input.query_start[b + 1]; t++) {
      const int32_t count =
          std::max(input.kv_len[b] - (input.query_start[b + 1] - 1 - t), int32_t{0});
      for (int64_t h = 0; h < kHeads; h++)  // fp32 lse: 65,536 keys are known to a quarter of one
        require(std::abs(std::exp(double(lse[h * tokens + t])) - count) <= 0.01 + 4e-6 * count,
                "a row counted other keys than it sees");
    }
}

}  // namespace

bool plan_bytes(const uint8_t* data, size_t size) {
  const Input input(Bytes(data, size));
  AttentionSpec spec;
  spec.dtype = DType::kFloat32;
  spec.num_query_heads = kHeads;
  spec.num_kv_heads = 1;
  spec.head_dim_qk = kDim;
  spec.page_size = input.page_size;
  spec.needs_lse = true;
  const Attention attention(context_of({"cpu", std::nullopt, 2}), spec, {.backend = "cpu"});
  try {
    const Plan plan = attention.plan(input.batch());
    // A huge pool or ragged buffer that is only claimed cannot be run here.
    const bool small = input.page_size ? input.num_pages <= kPoolPages
                                       : input.kv_start.empty() || input.kv_start.back() < 1 << 16;
    if (!small || plan.num_tokens() >= 1 << 12) return false;
    run_and_count(input, attention, plan);
    return true;
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kInvalidArgument, error.what());
    return false;
  }
}

}  // namespace rapt::test
