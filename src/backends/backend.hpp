// What every backend is: planning from lengths, running, writing the cache. One object serves one
// spec.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/gpu.hpp"
#include "problem/run_args.hpp"
#include "rapt/attention.hpp"

namespace rapt {

// A backend's schedule of one step. Each backend derives its own typed plan.
struct BackendPlan {
  BatchShape shape;  // what a run's tensors must fit: the batch, or the largest of the envelope
  std::optional<GraphEnvelope> envelope;
  virtual ~BackendPlan() = default;
  virtual std::string describe() const = 0;
};

// What a backend may use of its context.
struct BackendEnvironment {
  const DeviceInfo& device;
  const ParallelFor& parallel_for;  // never empty
  int32_t num_threads;
  Gpu* gpu;  // null where attention runs on the CPU
};

// Arguments reach a backend validated (problem/run_args.hpp); what it asks for beyond that, and
// what its device refuses, it throws before the first write.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  // Where every tensor of a run must be.
  virtual Device tensor_device() const = 0;
  virtual std::unique_ptr<BackendPlan> make_plan() const = 0;
  // Fills a plan that make_plan() made, reusing its memory. `batch` is valid.
  virtual void plan(const Batch& batch, BackendPlan& plan) const = 0;
  // The same for plan.envelope, of backends that graphs hold a step of: all that runs refer to is
  // made, and stays where it is while the plan lives. It is of no batch, once the stream is there.
  virtual void plan_envelope(BackendPlan& plan, void* stream) const;
  // Makes the plan of an envelope one of this batch, which is within it, once the stream is there.
  // Where it throws, nothing has changed.
  virtual void plan_within(const Batch& batch, BackendPlan& plan, void* stream) const;
  virtual void run(const BackendPlan& plan, const RunArgs& args) const = 0;
  virtual void write_kv(const WriteKvArgs& args) const = 0;
};

// The backend a selection names. Only built ones are ever selected.
std::unique_ptr<AttentionBackend> make_backend(const Selection& selection,
                                               const AttentionSpec& spec,
                                               const BackendEnvironment& environment);

}  // namespace rapt
