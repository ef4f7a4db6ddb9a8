#include "backends/cpu/fold.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/merge.hpp"

namespace rapt::cpu {
namespace {

constexpr double kNoKeyLse = -std::numeric_limits<double>::infinity();

// The rows of a work. A row's state is the largest lse of the parts so far, the sum of their
// weights exp(lse - max), and that of their outputs times those.
class FoldedRows {
 public:
  FoldedRows(const Work& work, int64_t dim, int64_t stride, std::byte* memory)
      : num_rows_(work.num_rows()), dim_(dim), stride_(stride) {
    const FoldLayout layout(num_rows_, stride);
    part_ = {.out = reinterpret_cast<float*>(memory + layout.part_out),
             .lse = reinterpret_cast<float*>(memory + layout.part_lse),
             .out_stride = stride};
    values_ = reinterpret_cast<double*>(memory + layout.values);
    maxima_ = reinterpret_cast<double*>(memory + layout.maxima);
    sums_ = reinterpret_cast<double*>(memory + layout.sums);
    std::fill_n(values_, num_rows_ * stride, 0.0);
    std::fill_n(maxima_, num_rows_, kNoKeyLse);
    std::fill_n(sums_, num_rows_, 0.0);
  }

  // Where a kernel call leaves its partial states, and what adds them.
  const Partials& part() const { return part_; }
  void add_part() {
    for (int64_t row = 0; row < num_rows_; row++) {
      const double lse = part_.lse[row];
      if (lse == kNoKeyLse) continue;  // it saw no key
      double weight = 1;
      if (lse <= maxima_[row]) {
        weight = std::exp(lse - maxima_[row]);
      } else {
        const double decay = std::exp(maxima_[row] - lse);
        double* const values = this->values(row);
        for (int64_t i = 0; i < dim_; i++) values[i] *= decay;
        sums_[row] *= decay;
        maxima_[row] = lse;
      }
      double* const values = this->values(row);
      const float* const part = part_.out + row * stride_;
      for (int64_t i = 0; i < dim_; i++) values[i] += weight * part[i];
      sums_[row] += weight;
    }
  }

  double* values(int64_t row) const { return values_ + row * stride_; }
  double max(int64_t row) const { return maxima_[row]; }
  double sum(int64_t row) const { return sums_[row]; }

 private:
  const int64_t num_rows_, dim_, stride_;
  Partials part_;
  double *values_, *maxima_, *sums_;
};

}  // namespace

void run_folded(Kernel kernel, const Problem& problem, const Request& request, const Work& work,
                const Partials& partials, std::byte* scratch, std::byte* fold) {
  const int64_t dim = problem.head_dim_vo;
  FoldedRows rows(work, dim, partials.out_stride, fold);
  Work part = work;
  part.partial = 0;
  for (; part.key_begin < work.key_end; part.key_begin = part.key_end) {
    const int64_t next_cut = (int64_t{part.key_begin} / kMaxChainKeys + 1) * kMaxChainKeys;
    part.key_end = static_cast<int32_t>(std::min<int64_t>(next_cut, work.key_end));
    kernel(problem, request, part, rows.part(), scratch);
    rows.add_part();
  }
  const int32_t rows_of_head = work.row_end - work.row_begin;
  for (int64_t row = 0; row < work.num_rows(); row++) {
    const double sum = rows.sum(row);
    double* const values = rows.values(row);
    if (work.partial < 0) {
      write_state(problem, request, work.kv_head_begin + row / rows_of_head,
                  work.row_begin + row % rows_of_head, values, rows.max(row), sum);
      continue;
    }
    float* const out = partials.out + (work.partial + row) * partials.out_stride;
    for (int64_t i = 0; i < dim; i++) out[i] = static_cast<float>(values[i] / sum);
    partials.lse[work.partial + row] = sum == 0 ? -std::numeric_limits<float>::infinity()
                                                : static_cast<float>(rows.max(row) + std::log(sum));
  }
}

}  // namespace rapt::cpu
