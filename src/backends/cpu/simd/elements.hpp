// 16-bit tensor elements as types, so that loads and stores are chosen by overload. No functions:
// whatever is compiled with an instruction set's flags must stay inside that file.
#pragma once

#include <cstdint>

namespace rapt::cpu {

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

}  // namespace rapt::cpu
