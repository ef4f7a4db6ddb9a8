// From a selection to the backend that runs it.
#include "backends/backend.hpp"
#include "backends/cpu/cpu_backend.hpp"
#include "backends/reference/reference_backend.hpp"
#include "core/check.hpp"

namespace rapt {

void AttentionBackend::plan_envelope(BackendPlan&, void*) const {
  fail(ErrorCode::kInternal, "a graph envelope for a backend that plans none");
}
void AttentionBackend::plan_within(const Batch&, BackendPlan&, void*) const {
  fail(ErrorCode::kInternal, "a graph envelope for a backend that plans none");
}

std::unique_ptr<AttentionBackend> make_backend(const Selection& selection,
                                               const AttentionSpec& spec,
                                               const BackendEnvironment& environment) {
  switch (selection.backend) {
    case BackendId::kReference:
      return std::make_unique<ReferenceBackend>(spec, environment);
    case BackendId::kCpu:
      return std::make_unique<CpuBackend>(spec, environment);
    case BackendId::kFlashAttention:
      if (environment.gpu) return make_flash_attention_backend(spec, *environment.gpu);
      [[fallthrough]];
    default:
      fail(ErrorCode::kInternal, "backend ", to_string(selection.backend),
           " was selected but is not built");
  }
}

}  // namespace rapt
