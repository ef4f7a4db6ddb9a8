// The CPU backend: a plan of equal ranges of work, run over parallel_for by the kernels of this
// processor's instruction set, then one merge of what was split.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cpu/kernels.hpp"
#include "plan/cpu_plan.hpp"

namespace rapt {

class CpuBackend final : public AttentionBackend {
 public:
  CpuBackend(const AttentionSpec& spec, const BackendEnvironment& environment);

  Device tensor_device() const override { return {}; }
  std::unique_ptr<BackendPlan> make_plan() const override;
  void plan(const Batch& batch, BackendPlan& plan) const override;
  void run(const BackendPlan& plan, const RunArgs& args) const override;
  void write_kv(const WriteKvArgs& args) const override;

 private:
  cpu::Problem problem_of(const RunArgs& args) const;

  AttentionSpec spec_;
  const ParallelFor& parallel_for_;
  const cpu::Kernels& kernels_;
  cpu::Problem rules_;  // the spec's part of every problem
  cpu::Machine machine_;
};

}  // namespace rapt
