// The contract in fp64: plain code that defines what every other backend must compute.
#pragma once

#include <memory>

#include "backends/backend.hpp"

namespace rapt {

class ReferenceBackend final : public AttentionBackend {
 public:
  ReferenceBackend(const AttentionSpec& spec, const BackendEnvironment& environment);

  Device tensor_device() const override { return {}; }
  std::unique_ptr<BackendPlan> make_plan() const override;
  void plan(const Batch& batch, BackendPlan& plan) const override;
  void run(const BackendPlan& plan, const RunArgs& args) const override;
  void write_kv(const WriteKvArgs& args) const override;

 private:
  AttentionSpec spec_;
  const ParallelFor& parallel_for_;
  int32_t num_threads_;
};

}  // namespace rapt
