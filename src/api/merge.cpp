#include <algorithm>

#include "api/context_impl.hpp"
#include "backends/cpu/merge.hpp"
#include "core/check.hpp"
#include "problem/run_args.hpp"
#include "rapt/attention.hpp"

namespace rapt {

void merge(Context& context, const MergeArgs& args) {
  validate(args, context.tensor_device());
  const Context::Impl& environment = context.impl();
  if (environment.gpu) return environment.gpu->merge(args);
  const int64_t num_rows = checked_mul(args.out.shape[0], args.out.shape[1], "merge: rows");
  // Enough elements for a task to be worth a thread.
  constexpr int64_t kElementsPerTask = 1 << 14;
  const int64_t elements =
      std::max<int64_t>(args.out.shape[2], 1) * static_cast<int64_t>(args.outs.size());
  const int64_t rows_per_task = std::max({kElementsPerTask / elements, int64_t{1}, num_rows >> 20});
  environment.parallel_for(static_cast<int32_t>(ceil_div(num_rows, rows_per_task)),
                           [&](int32_t task) {
                             cpu::merge_states(args, task * rows_per_task,
                                               std::min(num_rows, (task + 1) * rows_per_task));
                           });
}

}  // namespace rapt
