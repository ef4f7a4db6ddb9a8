// The decode kernel of an instruction set, for every element type.
#pragma once

#include "backends/cpu/decoder-inl.hpp"

namespace rapt::cpu {
namespace {

template <typename T>
struct DecoderFor {
  template <int kRows>
  using Of = Decoder<typename RowsOf<T>::type, PieceList, kRows>;
};

inline void decode(const Problem& problem, const Request& request, const Work& work,
                   const Partials& partials, std::byte* scratch) {
  switch (problem.dtype) {
    case DType::kFloat32:
      return decode_rows<DecoderFor<float>::Of>(problem, request, work, partials, scratch);
    case DType::kFloat16:
      return decode_rows<DecoderFor<Half>::Of>(problem, request, work, partials, scratch);
    default:
      return decode_rows<DecoderFor<BFloat>::Of>(problem, request, work, partials, scratch);
  }
}

}  // namespace
}  // namespace rapt::cpu
