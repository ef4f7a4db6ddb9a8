// What Rapt owns while it works: threads, callbacks, and nothing global.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "rapt/device.hpp"
#include "rapt/export.hpp"

namespace rapt {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// Runs task(i) once for every i in [0, num_tasks), on any threads, and returns when all are done.
// Tasks never throw, never block on each other, and may run in any order, also one after the other
// on the calling thread.
using ParallelFor =
    std::function<void(int32_t num_tasks, const std::function<void(int32_t)>& task)>;

struct ContextOptions {
  int32_t num_threads =
      0;  // CPU threads including the caller's; 0 = the cores this process may use
  ParallelFor parallel_for{};  // the caller's own pool; empty = Rapt's (a bounded spin, then sleep)
  std::optional<CpuIsa> isa{};  // a lower level than the processor has; unset = host_cpu().isa
  std::function<void(LogLevel, std::string_view)>
      log{};  // what was chosen and why (kInfo); empty = silent
};

// Shared by any number of Attention objects, which it must outlive; safe to use from several
// threads, which then take turns on its pool.
class RAPT_API Context {
 public:
  explicit Context(ContextOptions options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int32_t num_threads() const;
  // The device plans are made for: host_cpu() with this context's ISA and thread count.
  const DeviceInfo& device() const;

  struct Impl;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace rapt
