#include "rapt/attention.hpp"

#include <memory>
#include <utility>

#include "api/context_impl.hpp"
#include "backends/backend.hpp"
#include "core/check.hpp"

namespace rapt {

struct Plan::Impl {
  // The backend it was made by and for; held, so that no later one can have its address.
  std::shared_ptr<const AttentionBackend> owner;
  std::unique_ptr<BackendPlan> plan;
};

Plan::Plan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

size_t Plan::workspace_bytes() const {
  return impl_->plan->shape.workspace_bytes;
}
int64_t Plan::num_tokens() const {
  return impl_->plan->shape.num_tokens;
}
std::string Plan::describe() const {
  return impl_->plan->describe();
}

struct Attention::Impl {
  AttentionSpec spec;
  Selection selection;
  std::shared_ptr<const AttentionBackend> backend;
};

Attention::Attention(Context& context, const AttentionSpec& spec, const SelectOptions& options)
    : impl_(std::make_unique<Impl>()) {
  const Context::Impl& environment = context.impl();
  impl_->spec = spec;
  impl_->selection = select(spec, environment.device, options);
  impl_->backend = make_backend(impl_->selection, spec,
                                {environment.device, environment.parallel_for,
                                 environment.num_threads, environment.gpu.get()});
  if (!environment.options.log) return;
  // Right, but slow: who did not ask for the reference should hear of it.
  const bool slow = impl_->selection.backend == BackendId::kReference &&
                    options.backend != to_string(BackendId::kReference);
  std::string message = impl_->selection.explain();
  message.pop_back();  // the last line's end: a log adds its own
  environment.options.log(slow ? LogLevel::kWarning : LogLevel::kInfo, message);
}

Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;

const AttentionSpec& Attention::spec() const {
  return impl_->spec;
}
const Selection& Attention::selection() const {
  return impl_->selection;
}

Plan Attention::plan(const Batch& batch) const {
  auto impl = std::make_unique<Plan::Impl>();
  impl->owner = impl_->backend;
  impl->plan = impl_->backend->make_plan();
  Plan plan(std::move(impl));
  replan(plan, batch);
  return plan;
}

void Attention::replan(Plan& plan, const Batch& batch) const {
  check(plan.impl_ && plan.impl_->owner == impl_->backend,
        "replan: the plan was made by another attention object");
  validate(batch, impl_->spec);
  const TensorView& table = batch.page_table;
  check(table.device.kind == DeviceKind::kCpu || table.device == impl_->backend->tensor_device(),
        "page_table is on cuda:", table.device.index,
        ": it must be on the host, or on the device that runs");
  BackendPlan& backend_plan = *plan.impl_->plan;
  backend_plan.shape = {
      .num_requests = batch.num_requests(),
      .num_tokens = batch.num_tokens(),
      .num_pages = impl_->spec.is_paged() ? batch.num_pages : 0,
      .num_kv_rows = batch.kv_start.empty() ? 0 : batch.kv_start.back(),
      .custom_mask_bytes = impl_->spec.custom_mask ? custom_mask_bytes(batch) : 0,
  };
  try {
    impl_->backend->plan(batch, backend_plan);
  } catch (...) {
    // Half a plan must not run: leave one without work.
    plan.impl_->plan = impl_->backend->make_plan();
    throw;
  }
}

void Attention::run(const Plan& plan, const RunArgs& args) const {
  check(plan.impl_ && plan.impl_->owner == impl_->backend,
        "run: the plan was made by another attention object");
  const BackendPlan& backend_plan = *plan.impl_->plan;
  validate(impl_->spec, backend_plan.shape, args, impl_->backend->tensor_device());
  impl_->backend->run(backend_plan, args);
}

void Attention::write_kv(const WriteKvArgs& args) const {
  validate(impl_->spec, args, impl_->backend->tensor_device());
  impl_->backend->write_kv(args);
}

}  // namespace rapt
