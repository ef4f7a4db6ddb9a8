// Compiled code on a device: modules, the kernels in them, and their launch.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "launch/stream.hpp"

namespace rapt::cuda {

// A cubin loaded into a context.
class Module {
 public:
  // Copies the image. Throws Error(kDevice) where the driver refuses it: made for another
  // architecture, by a newer compiler than the driver knows, or damaged.
  Module(const Context& context, const void* image, size_t bytes);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const Context& context() const { return context_; }
  ModuleHandle handle() const { return handle_; }

 private:
  const Context& context_;
  ModuleHandle handle_ = nullptr;
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Dim3 grid = {};   // blocks
  Dim3 block = {};  // threads
  // Blocks that run at once and reach each other's shared memory; {1, 1, 1}: none.
  Dim3 cluster = {};
  uint32_t shared_bytes = 0;  // dynamic shared memory of a block
  // Programmatic dependent launch, SM90 and later: the kernel may begin while the one before it on
  // the stream still runs, and must wait (griddepcontrol.wait) before it reads what that one wrote.
  // Older devices run one after the other whatever is said here.
  bool overlaps_previous = false;
};

// A function of a module, ready to launch: loaded, its shared memory allowed. The module must
// outlive it.
class Kernel {
 public:
  // max_dynamic_shared_bytes: the most that any launch will ask for.
  Kernel(const Module& module, const std::string& name, int32_t max_dynamic_shared_bytes);

  const std::string& name() const { return name_; }
  int32_t num_registers() const { return num_registers_; }              // of a thread
  int32_t local_bytes() const { return local_bytes_; }                  // of a thread
  int32_t static_shared_bytes() const { return static_shared_bytes_; }  // of a block
  int32_t max_dynamic_shared_bytes() const { return max_dynamic_shared_bytes_; }
  int32_t max_threads_per_block() const { return max_threads_per_block_; }
  // What its parameters take, each; empty where the driver is older than CUDA 12.4 and cannot say.
  const std::vector<size_t>& parameter_bytes() const { return parameter_bytes_; }
  FunctionHandle handle() const { return function_; }

  // Throws Error(kInvalidArgument) for a shape or arguments that are not the kernel's.
  void check_launch(const LaunchShape& shape, std::span<const size_t> argument_bytes) const;

 private:
  template <typename... Args>
  friend void launch(const Kernel&, const LaunchShape&, Stream, const Args&...);
  void launch_with(const LaunchShape& shape, Stream stream, const void* const* arguments,
                   std::span<const size_t> argument_bytes) const;
  void check_shape(const LaunchShape& shape) const;

  const Driver* driver_;
  std::string name_;
  FunctionHandle function_ = nullptr;
  int32_t num_registers_ = 0, local_bytes_ = 0, static_shared_bytes_ = 0;
  int32_t max_dynamic_shared_bytes_ = 0, max_threads_per_block_ = 0;
  bool is_hopper_or_later_ = false;
  std::vector<size_t> parameter_bytes_;
};

// As the driver takes them: the address of each, and what it has.
template <typename... Args>
struct Arguments {
  static_assert((std::is_trivially_copyable_v<Args> && ...));
  static constexpr std::array<size_t, sizeof...(Args)> kBytes = {sizeof(Args)...};
  explicit Arguments(const Args&... args)
      : pointers{static_cast<const void*>(std::addressof(args))..., nullptr} {}
  const void* pointers[sizeof...(Args) + 1];
};

// Puts the kernel on the stream; needs a current context. The arguments are copied, bit by bit, as
// the kernel's parameters in their order. Allocates nothing and waits for nothing. Throws
// Error(kInvalidArgument) for a shape or arguments that are not the kernel's, Error(kDevice) for
// what the driver refuses; nothing is launched then.
template <typename... Args>
void launch(const Kernel& kernel, const LaunchShape& shape, Stream stream, const Args&... args) {
  const Arguments<Args...> arguments(args...);
  kernel.launch_with(shape, stream, arguments.pointers, arguments.kBytes);
}

}  // namespace rapt::cuda
