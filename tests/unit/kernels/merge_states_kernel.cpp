// Of states of Element RAPT_FROM.
#include "cache_kernels.hpp"

#include "merge/merge_states.cuh"

namespace rapt::emulator {
namespace {

template <Element kElement>
struct TypeOf;
template <>
struct TypeOf<Element::kFloat32> {
  using Type = device::F32;
};
template <>
struct TypeOf<Element::kFloat16> {
  using Type = device::F16;
};
template <>
struct TypeOf<Element::kBFloat16> {
  using Type = device::Bf16;
};

template <Element kFrom, Element kTo>
void run(Memory& memory, const Options& options, const device::MergeStatesParams& params) {
  const auto blocks = static_cast<uint32_t>(
      device::merge_blocks(params.tiles, params.num_tokens, params.num_heads));
  launch(memory, {{blocks}, 32 * device::kMergeWarps}, options, [&] {
    device::merge_states<typename TypeOf<kFrom>::Type, typename TypeOf<kTo>::Type>(params);
  });
}

}  // namespace

template <Element kFrom>
void run_merge_states_of(Memory& memory, const Options& options, Element to,
                         const device::MergeStatesParams& params) {
  switch (to) {
    case Element::kFloat32:
      return run<kFrom, Element::kFloat32>(memory, options, params);
    case Element::kFloat16:
      return run<kFrom, Element::kFloat16>(memory, options, params);
    case Element::kBFloat16:
      return run<kFrom, Element::kBFloat16>(memory, options, params);
  }
}
template void run_merge_states_of<Element::RAPT_FROM>(Memory&, const Options&, Element,
                                                      const device::MergeStatesParams&);

}  // namespace rapt::emulator
