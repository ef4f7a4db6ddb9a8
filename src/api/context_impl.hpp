// The inside of a Context.
#pragma once

#include <memory>
#include <optional>

#include "backends/gpu.hpp"
#include "core/thread_pool.hpp"
#include "rapt/context.hpp"

namespace rapt {

struct Context::Impl {
  ContextOptions options;
  DeviceInfo device;
  std::optional<ThreadPool> pool;  // none with the caller's own parallel_for
  ParallelFor parallel_for;        // never empty
  int32_t num_threads = 1;
  std::unique_ptr<Gpu> gpu;  // none where attention runs on the CPU
};

}  // namespace rapt
