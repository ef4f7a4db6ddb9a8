// Lanes of a warp that execute an instruction together.
#pragma once

#include "emulator/machine.hpp"

namespace rapt::emulator {

// Whether all lanes must come from the same line, as for PTX's .aligned instructions.
enum class Aligned : bool { kNo, kYes };

// Joins the current instruction's meeting of all 32 lanes with a value. True for the lane that
// completes it: that lane acts for all and calls end_meeting(); the others return after that.
// `values` are by lane, and may be read until the thread's next instruction.
bool join_meeting(Aligned aligned, Brought value, const Brought** values);
void end_meeting();

template <class ForAll>
const Brought* meet(Aligned aligned, Brought value, ForAll&& for_all) {
  const Brought* values;
  if (join_meeting(aligned, value, &values)) {
    for_all(values);
    end_meeting();
  }
  return values;
}

}  // namespace rapt::emulator
