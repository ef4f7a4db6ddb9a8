#include "kernel_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "core/float16.hpp"
#include "rapt/device.hpp"

namespace rapt::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kRaggedStart = 3;  // rows of other requests before this one's
constexpr int64_t kPadding = 8;      // elements after each row that belong to nobody

double roundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0x1p-24;
    case DType::kFloat16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}

}  // namespace

std::string KernelCase::describe() const {
  std::ostringstream text;
  text << to_string(dtype) << " kv_heads " << num_kv_heads << " group " << group << " dims "
       << head_dim_qk << "/" << head_dim_vo << " page " << page_size << " queries " << query_len
       << " keys " << kv_len << " window " << window_left << "," << window_right << " softcap "
       << softcap << (alibi ? " alibi" : "") << (sinks ? " sinks" : "")
       << (custom_mask ? " mask" : "") << (scales ? " scales" : "") << " spread " << spread
       << " scale " << scale << " seed " << seed;
  return text.str();
}

KernelTensors::KernelTensors(const KernelCase& of)
    : case_(of), element_bytes_(static_cast<int64_t>(size_of(of.dtype))) {
  std::mt19937 random(of.seed);
  std::normal_distribution<float> normal(0, 1);
  const int32_t page = of.page_size ? of.page_size : 1;
  const int64_t num_pages = of.page_size ? (of.kv_len + page - 1) / page : 0;
  const int64_t num_slots = of.page_size ? (num_pages + 2) * page : kRaggedStart + of.kv_len + 2;
  pages_.resize(num_pages + 2);
  std::iota(pages_.begin(), pages_.end(), 0);
  std::shuffle(pages_.begin(), pages_.end(), random);

  const int64_t q_rows = (kQueryStart + of.query_len + 1) * of.num_query_heads();
  q_.resize(q_rows * (of.head_dim_qk + kPadding) * element_bytes_);
  k_.resize(num_slots * of.num_kv_heads * (of.head_dim_qk + kPadding) * element_bytes_);
  v_.resize(num_slots * of.num_kv_heads * (of.head_dim_vo + kPadding) * element_bytes_);
  out_.resize(q_rows * (of.head_dim_vo + kPadding) * element_bytes_);
  lse_.resize(q_rows);
  for (auto* tensor : {&q_, &k_, &v_})
    for (size_t i = 0; i < tensor->size() / element_bytes_; i++) set(*tensor, i, kNan);
  for (int64_t i = 0; i < of.query_len; i++)
    for (int32_t h = 0; h < of.num_query_heads(); h++)
      for (int32_t d = 0; d < of.head_dim_qk; d++)
        set(q_, q_index(i, h) + d, normal(random) * of.spread);
  for (int64_t j = 0; j < of.kv_len; j++)
    for (int32_t h = 0; h < of.num_kv_heads; h++) {
      for (int32_t d = 0; d < of.head_dim_qk; d++) set_k(j, h, d, normal(random) * of.spread);
      for (int32_t d = 0; d < of.head_dim_vo; d++) set_v(j, h, d, normal(random));
    }
  for (int32_t h = 0; h < of.num_query_heads(); h++) {
    alibi_slopes_.push_back(std::exp2(-0.5f * static_cast<float>(h + 1)));
    sinks_.push_back(normal(random) * 2);
  }
  for (int32_t h = 0; h < of.num_kv_heads; h++) {
    k_scale_.push_back(0.5f + 0.25f * static_cast<float>(h));
    v_scale_.push_back(1.5f - 0.25f * static_cast<float>(h));
  }
  // The mask begins in the middle of a byte and ends with its last bit's byte.
  mask_.resize((5 + int64_t{of.query_len} * of.kv_len + 7) / 8);
  for (uint8_t& byte : mask_) byte = static_cast<uint8_t>(random() & random() & 0xff);
  clear_outputs();
}

void KernelTensors::clear_outputs() {
  for (size_t i = 0; i < out_.size() / element_bytes_; i++) set(out_, i, kNan);
  std::fill(lse_.begin(), lse_.end(), kNan);
}

int64_t KernelTensors::key_slot(int64_t j) const {
  if (case_.page_size == 0) return kRaggedStart + j;
  return int64_t{pages_[j / case_.page_size]} * case_.page_size + j % case_.page_size;
}
int64_t KernelTensors::q_index(int64_t i, int64_t head) const {
  return ((kQueryStart + i) * case_.num_query_heads() + head) * (case_.head_dim_qk + kPadding);
}
int64_t KernelTensors::k_index(int64_t j, int64_t head) const {
  return (key_slot(j) * case_.num_kv_heads + head) * (case_.head_dim_qk + kPadding);
}
int64_t KernelTensors::v_index(int64_t j, int64_t head) const {
  return (key_slot(j) * case_.num_kv_heads + head) * (case_.head_dim_vo + kPadding);
}

double KernelTensors::get(const std::vector<std::byte>& tensor, int64_t element) const {
  const std::byte* at = tensor.data() + element * element_bytes_;
  if (case_.dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return case_.dtype == DType::kFloat16 ? float16_to_float(bits) : bfloat16_to_float(bits);
}
void KernelTensors::set(std::vector<std::byte>& tensor, int64_t element, float value) {
  std::byte* at = tensor.data() + element * element_bytes_;
  if (case_.dtype == DType::kFloat32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const uint16_t bits =
      case_.dtype == DType::kFloat16 ? float_to_float16(value) : float_to_bfloat16(value);
  std::memcpy(at, &bits, sizeof bits);
}
void KernelTensors::set_k(int64_t j, int64_t head, int64_t d, float value) {
  set(k_, k_index(j, head) + d, value);
}
void KernelTensors::set_v(int64_t j, int64_t head, int64_t d, float value) {
  set(v_, v_index(j, head) + d, value);
}
double KernelTensors::out(int64_t i, int64_t head, int64_t d) const {
  return get(
      out_,
      ((kQueryStart + i) * case_.num_query_heads() + head) * (case_.head_dim_vo + kPadding) + d);
}
double KernelTensors::lse(int64_t i, int64_t head) const {
  return lse_[head * (kQueryStart + case_.query_len + 1) + kQueryStart + i];
}

bool KernelTensors::sees(int64_t i, int64_t j) const {
  const int64_t p = i + case_.kv_len - case_.query_len;
  if (case_.window_left != -1 && j < p - case_.window_left) return false;
  if (case_.window_right != -1 && j > p + case_.window_right) return false;
  if (!case_.custom_mask) return true;
  const int64_t bit = 5 + i * case_.kv_len + j;
  return mask_[bit / 8] >> (bit % 8) & 1;
}

void KernelTensors::poison_unseen() {
  for (int64_t j = 0; j < case_.kv_len; j++) {
    bool seen = false;
    for (int64_t i = 0; i < case_.query_len; i++) seen |= sees(i, j);
    for (int32_t h = 0; h < case_.num_kv_heads && !seen; h++) {
      for (int32_t d = 0; d < case_.head_dim_qk; d++) set_k(j, h, d, kNan);
      for (int32_t d = 0; d < case_.head_dim_vo; d++) set_v(j, h, d, kNan);
    }
  }
}

cpu::Problem KernelTensors::problem() const {
  const int64_t hkv = case_.num_kv_heads, hq = case_.num_query_heads();
  const int64_t k_row = (case_.head_dim_qk + kPadding) * element_bytes_;
  const int64_t v_row = (case_.head_dim_vo + kPadding) * element_bytes_;
  cpu::Problem p{};
  p.q = q_.data(), p.k = k_.data(), p.v = v_.data();
  p.out = const_cast<std::byte*>(out_.data());
  p.lse = case_.wants_lse ? const_cast<float*>(lse_.data()) : nullptr;
  p.q_head_stride = k_row, p.q_token_stride = hq * k_row;
  p.k_head_stride = k_row, p.k_token_stride = hkv * k_row;
  p.k_page_stride = case_.page_size * p.k_token_stride;
  p.v_head_stride = v_row, p.v_token_stride = hkv * v_row;
  p.v_page_stride = case_.page_size * p.v_token_stride;
  p.out_head_stride = v_row, p.out_token_stride = hq * v_row;
  p.lse_token_stride = sizeof(float);
  p.lse_head_stride = (kQueryStart + case_.query_len + 1) * static_cast<int64_t>(sizeof(float));
  p.dtype = case_.dtype;
  p.num_query_heads = case_.num_query_heads(), p.num_kv_heads = case_.num_kv_heads;
  p.group = case_.group;
  p.head_dim_qk = case_.head_dim_qk, p.head_dim_vo = case_.head_dim_vo;
  p.page_size = case_.page_size;
  p.scale = case_.scale != 0 ? case_.scale : 1 / std::sqrt(static_cast<float>(case_.head_dim_qk));
  p.softcap = case_.softcap;
  p.window_left = case_.window_left, p.window_right = case_.window_right;
  p.alibi_slopes = case_.alibi ? alibi_slopes_.data() : nullptr;
  p.sinks = case_.sinks ? sinks_.data() : nullptr;
  p.custom_mask = case_.custom_mask ? mask_.data() : nullptr;
  p.k_scale = case_.scales ? k_scale_.data() : nullptr;
  p.v_scale = case_.scales ? v_scale_.data() : nullptr;
  p.scales_per_head = case_.scales;
  return p;
}

cpu::Request KernelTensors::request() const {
  return {.query_start = kQueryStart,
          .query_len = case_.query_len,
          .kv_len = case_.kv_len,
          .pages = case_.page_size ? pages_.data() : nullptr,
          .kv_start = kRaggedStart,
          .mask_bit = 5};
}

KernelReference reference(const KernelTensors& tensors, bool with_sink) {
  const KernelCase& c = tensors.the_case();
  const cpu::Problem problem = tensors.problem();
  KernelReference result;
  for (int64_t i = 0; i < c.query_len; i++)
    for (int32_t h = 0; h < c.num_query_heads(); h++) {
      const int32_t kv_head = h / c.group;
      std::vector<double> scores(c.kv_len, -kInf);
      double top = -kInf;
      for (int64_t j = 0; j < c.kv_len; j++) {
        if (!tensors.sees(i, j)) continue;
        double s = 0;
        for (int32_t d = 0; d < c.head_dim_qk; d++)
          s += tensors.q(i, h, d) * tensors.k(j, kv_head, d);
        s *= problem.scale;
        if (c.scales) s *= problem.k_scale[kv_head];
        if (c.softcap != 0) s = c.softcap * std::tanh(s / c.softcap);
        if (c.alibi)
          s -= problem.alibi_slopes[h] * std::fabs(double(i + c.kv_len - c.query_len - j));
        scores[j] = s;
        top = std::max(top, s);
        result.largest_score = std::max(result.largest_score, std::fabs(s));
      }
      const bool sink = c.sinks && with_sink;
      if (sink) top = std::max<double>(top, problem.sinks[h]);
      double sum = sink ? std::exp(problem.sinks[h] - top) : 0;
      std::vector<double> out(c.head_dim_vo, 0.0);
      for (int64_t j = 0; j < c.kv_len; j++) {
        if (scores[j] == -kInf) continue;
        const double weight = std::exp(scores[j] - top);
        sum += weight;
        for (int32_t d = 0; d < c.head_dim_vo; d++) {
          const double v = tensors.v(j, kv_head, d) * (c.scales ? problem.v_scale[kv_head] : 1);
          out[d] += weight * v;
          result.largest_value = std::max(result.largest_value, std::fabs(v));
        }
      }
      for (double& x : out) x = sum > 0 ? x / sum : 0;
      result.out.insert(result.out.end(), out.begin(), out.end());
      result.lse.push_back(sum > 0 ? top + std::log(sum) : -kInf);
    }
  return result;
}

void run_prefill(const cpu::Kernels& kernels, KernelTensors& tensors, int32_t rows_per_work) {
  tensors.clear_outputs();
  const KernelCase& c = tensors.the_case();
  const cpu::Problem problem = tensors.problem();
  const size_t bytes = kernels.prefill_scratch_bytes(problem);
  std::vector<std::byte> memory(bytes + 128, std::byte{0xff});  // NaN in every type
  void* scratch = memory.data();
  size_t space = memory.size();
  std::align(64, bytes, scratch, space);
  if (rows_per_work == 0) rows_per_work = c.num_rows();
  for (int32_t h = 0; h < c.num_kv_heads; h++)
    for (int32_t row = 0; row < c.num_rows(); row += rows_per_work) {
      const cpu::Work work{.request = 0,
                           .kv_head_begin = h,
                           .kv_head_end = h + 1,
                           .row_begin = row,
                           .row_end = std::min(row + rows_per_work, c.num_rows()),
                           .key_begin = 0,
                           .key_end = c.kv_len,
                           .phase = cpu::Phase::kPrefill,
                           .partial = -1};
      kernels.prefill(problem, tensors.request(), work, {}, static_cast<std::byte*>(scratch));
    }
  const std::byte* end = static_cast<std::byte*>(scratch) + bytes;
  if (*end != std::byte{0xff}) throw std::runtime_error("the kernel wrote past its scratch");
}

KernelError error_of(const KernelTensors& tensors, const KernelReference& expected) {
  const KernelCase& c = tensors.the_case();
  // Rounding of the output and, averaged over keys, of the probabilities; fp32 rounding of scores
  // moves both by its share.
  const double score_error = 0x1p-22 * (expected.largest_score + 4);
  const double out_bound =
      expected.largest_value * (1.25 * roundoff(c.dtype) + 2 * score_error) + 1e-30;
  const double lse_bound =
      (c.dtype == DType::kBFloat16 ? 2e-4 : 2e-6) + score_error + 0x1p-23 * expected.largest_score;
  KernelError error;
  const auto ratio = [](double got, double want, double bound) {
    if (std::isnan(got) || std::isinf(got) || std::isinf(want)) return got == want ? 0.0 : kInf;
    return std::fabs(got - want) / bound;
  };
  size_t row = 0;
  for (int64_t i = 0; i < c.query_len; i++)
    for (int32_t h = 0; h < c.num_query_heads(); h++, row++) {
      error.lse = std::max(error.lse, ratio(tensors.lse(i, h), expected.lse[row], lse_bound));
      for (int32_t d = 0; d < c.head_dim_vo; d++)
        error.out = std::max(error.out, ratio(tensors.out(i, h, d),
                                              expected.out[row * c.head_dim_vo + d], out_bound));
    }
  return error;
}

std::vector<const cpu::Kernels*> runnable_kernels() {
  std::vector<const cpu::Kernels*> all;
  for (int level = 0; level <= static_cast<int>(host_cpu().isa); level++) {
    const cpu::Kernels* table = &cpu::kernels(static_cast<CpuIsa>(level));
    if (std::find(all.begin(), all.end(), table) == all.end()) all.push_back(table);
  }
  const cpu::Kernels* stand_in = cpu::amx_stand_in();
  if (stand_in && host_cpu().isa >= CpuIsa::kAvx512Bf16) all.push_back(stand_in);
  return all;
}

std::string name_of(const cpu::Kernels& kernels) {
  if (&kernels == cpu::amx_stand_in()) return "amx_stand_in";
  return to_string(kernels.isa);
}

}  // namespace rapt::test
