// The inside of a Context.
#pragma once

#include <optional>

#include "core/thread_pool.hpp"
#include "rapt/context.hpp"

namespace rapt {

struct Context::Impl {
  ContextOptions options;
  DeviceInfo device;
  std::optional<ThreadPool> pool;  // none with the caller's own parallel_for
  ParallelFor parallel_for;        // never empty
  int32_t num_threads = 1;
};

}  // namespace rapt
