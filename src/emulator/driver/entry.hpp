// A kernel as the driver calls it. Compiled into every image, after the kernel's text, so it
// includes little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rapt::emulator {

struct Parameter {
  size_t bytes, alignment;
};

// What an image exports for the kernel NAME, as rapt_emulated_NAME.
struct Entry {
  // Calls the kernel as one thread. Each element points to a parameter.
  void (*call)(const void* const* parameters);
  const Parameter* parameters;
  uint32_t num_parameters;
};

template <auto kKernel>
struct EntryOf;

template <typename... Parameters, void (*kKernel)(Parameters...)>
struct EntryOf<kKernel> {
  // One more than there are, as none may be.
  static constexpr Parameter kParameters[] = {{sizeof(Parameters), alignof(Parameters)}..., {0, 1}};

  template <size_t... kIndex>
  static void call_with([[maybe_unused]] const void* const* parameters,
                        std::index_sequence<kIndex...>) {
    kKernel(*static_cast<const Parameters*>(parameters[kIndex])...);
  }
  static void call(const void* const* parameters) {
    call_with(parameters, std::index_sequence_for<Parameters...>());
  }
  static constexpr Entry kEntry = {call, kParameters, sizeof...(Parameters)};
};

}  // namespace rapt::emulator
