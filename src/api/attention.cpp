#include "rapt/attention.hpp"

#include <memory>
#include <utility>

#include "api/context_impl.hpp"
#include "backends/backend.hpp"
#include "core/check.hpp"
#include "problem/envelope_check.hpp"

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

Plan Attention::plan(const GraphEnvelope& envelope, void* stream) const {
  validate(envelope, impl_->spec);
  const Selection& selection = impl_->selection;
  const GraphSupport needed =
      envelope.query_len_bound() == 1 ? GraphSupport::kSingleTokenDecode : GraphSupport::kAlways;
  if (selection.graph < needed)
    fail(ErrorCode::kUnsupported, "graph envelope: up to ", envelope.query_len_bound(),
         " query tokens of a request take graph support ", to_string(needed), ", backend ",
         to_string(selection.backend), " has ", to_string(selection.graph),
         ": plan each batch by itself");
  const TensorView& table = envelope.page_table;
  check(!table.has_value() || table.device == impl_->backend->tensor_device(),
        "graph envelope: page_table is on cuda:", table.device.index,
        ": must be on the device that runs");
  auto impl = std::make_unique<Plan::Impl>();
  impl->owner = impl_->backend;
  impl->plan = impl_->backend->make_plan();
  impl->plan->envelope = envelope;
  impl->plan->shape = {
      .num_requests = envelope.max_requests,
      .num_tokens = envelope.max_tokens,
      .num_pages = envelope.num_pages,
      .num_kv_rows = envelope.max_kv_rows,
      .custom_mask_bytes = impl_->spec.custom_mask ? custom_mask_bytes(envelope) : 0,
  };
  impl_->backend->plan_envelope(*impl->plan, stream);
  return Plan(std::move(impl));
}

void Attention::replan(Plan& plan, const Batch& batch, void* stream) const {
  check(plan.impl_ && plan.impl_->owner == impl_->backend,
        "replan: the plan was made by another attention object");
  BackendPlan& backend_plan = *plan.impl_->plan;
  check(backend_plan.envelope.has_value(),
        "replan: a stream is given, but the plan has no graph envelope: leave it out, the first "
        "run on a stream copies the plan there");
  validate(batch, impl_->spec);
  check_within(*backend_plan.envelope, batch);
  impl_->backend->plan_within(batch, backend_plan, stream);
}

void Attention::replan(Plan& plan, const Batch& batch) const {
  check(plan.impl_ && plan.impl_->owner == impl_->backend,
        "replan: the plan was made by another attention object");
  check(!plan.impl_->plan->envelope.has_value(),
        "replan: the plan has a graph envelope: name the stream on which its graph is launched");
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
