// A request with random tensors for one call of a kernel, and its attention in fp64 from the
// contract's text.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/kernels.hpp"

namespace rapt::test {

struct KernelCase {
  DType dtype = DType::kBFloat16;
  int32_t num_kv_heads = 1, group = 1, head_dim_qk = 64, head_dim_vo = 64;
  int32_t page_size = 16;  // 0 = ragged
  int32_t query_len = 5, kv_len = 37;
  int64_t window_left = -1, window_right = 0;
  float scale = 0;  // 0: head_dim_qk^-0.5
  float softcap = 0;
  bool alibi = false, sinks = false, custom_mask = false, scales = false;
  bool wants_lse = true;
  float spread = 1;  // standard deviation of q and k
  uint32_t seed = 1;

  std::string describe() const;
  int32_t num_query_heads() const { return num_kv_heads * group; }
  int32_t num_rows() const { return query_len * group; }
};

// The case's tensors. Keys lie in shuffled pages (or rows after a gap); all other memory of the
// pool is NaN. Query i of the request is row query_start + i of q and out.
class KernelTensors {
 public:
  explicit KernelTensors(const KernelCase& of);

  static constexpr int64_t kQueryStart = 2;
  const KernelCase& the_case() const { return case_; }
  cpu::Problem problem() const;
  cpu::Request request() const;

  bool sees(int64_t i, int64_t j) const;
  double q(int64_t i, int64_t head, int64_t d) const { return get(q_, q_index(i, head) + d); }
  double k(int64_t j, int64_t head, int64_t d) const { return get(k_, k_index(j, head) + d); }
  double v(int64_t j, int64_t head, int64_t d) const { return get(v_, v_index(j, head) + d); }
  void set_k(int64_t j, int64_t head, int64_t d, float value);
  void set_v(int64_t j, int64_t head, int64_t d, float value);
  // NaN in every key that no query sees.
  void poison_unseen();

  // Out and lse of one row, as the kernel left them; NaN where it wrote nothing.
  double out(int64_t i, int64_t head, int64_t d) const;
  double lse(int64_t i, int64_t head) const;
  const std::vector<std::byte>& out_bytes() const { return out_; }
  const std::vector<float>& lse_values() const { return lse_; }
  void clear_outputs();

 private:
  double get(const std::vector<std::byte>& tensor, int64_t element) const;
  void set(std::vector<std::byte>& tensor, int64_t element, float value);
  int64_t key_slot(int64_t j) const;
  int64_t q_index(int64_t i, int64_t head) const;
  int64_t k_index(int64_t j, int64_t head) const;
  int64_t v_index(int64_t j, int64_t head) const;

  KernelCase case_;
  int64_t element_bytes_;
  std::vector<int32_t> pages_;
  std::vector<std::byte> q_, k_, v_, out_;
  std::vector<float> lse_, alibi_slopes_, sinks_, k_scale_, v_scale_;
  std::vector<uint8_t> mask_;
};

// fp64 attention of the case: out [query_len, Hq, Dvo], lse [query_len, Hq].
struct KernelReference {
  std::vector<double> out, lse;
  double largest_value = 0;  // |v| among the visible ones, v_scale included
  double largest_score = 0;
};
KernelReference reference(const KernelTensors& tensors, bool with_sink = true);

// Runs the prefill kernel on all KV heads, rows in works of `rows_per_work` (0 = all at once).
void run_prefill(const cpu::Kernels& kernels, KernelTensors& tensors, int32_t rows_per_work = 0);

// The largest error of out and of lse over the bound that the dtype and the case allow; infinity
// where a NaN or an infinity is in the wrong place.
struct KernelError {
  double out = 0, lse = 0;
};
KernelError error_of(const KernelTensors& tensors, const KernelReference& reference);

// Every table that this processor can run.
std::vector<const cpu::Kernels*> runnable_kernels();
std::string name_of(const cpu::Kernels& kernels);

}  // namespace rapt::test
