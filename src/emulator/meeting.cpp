#include "emulator/meeting.hpp"

#include <cstring>

#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/order.hpp"

namespace rapt::emulator {

bool join_meeting(Aligned aligned, Brought value, const Brought** values) {
  Thread& t = *self;
  Warp& warp = *t.warp;
  if (warp.live != kAllLanes) fail_in(t, "needs all 32 lanes, and some have ended");
  Meeting* meeting = &warp.meetings[0];
  for (Meeting& other : warp.meetings)
    if (other.arrived || (meeting->unread && !meeting->arrived && !other.unread)) meeting = &other;
  const uint32_t bit = 1u << t.lane;
  if (!meeting->arrived) meeting->what = t.now;
  if ((meeting->what.instruction != t.now.instruction &&
       std::strcmp(meeting->what.instruction, t.now.instruction) != 0) ||
      (aligned == Aligned::kYes && meeting->what.at != t.now.at))
    fail_in(t, concat("meets ", meeting->what.describe(), " of other lanes"));
  meeting->values[t.lane] = value;
  meeting->arrived |= bit;
  *values = meeting->values;
  if (meeting->arrived == kAllLanes) return true;
  wait_for(Thread::Wait::kMeeting, static_cast<uint32_t>(meeting - warp.meetings));
  meeting->unread &= ~bit;
  return false;
}

void end_meeting() {
  Warp& warp = *self->warp;
  for (Meeting& meeting : warp.meetings) {
    if (meeting.arrived != kAllLanes) continue;
    meeting.arrived = 0;
    meeting.unread = kAllLanes & ~(1u << self->lane);
    for (int lane = 0; lane < kLanes; ++lane)
      if (meeting.unread >> lane & 1) wake(warp.lanes[lane]);
  }
}

uint32_t shuffle(uint32_t value, uint32_t source_lane, Location at) {
  const Instruction instruction("shfl.sync", at);
  const Brought* values = meet(Aligned::kNo, {.number = value}, [](const Brought*) {});
  return static_cast<uint32_t>(values[source_lane % kLanes].number);
}

bool any_lane(bool predicate, Location at) {
  const Instruction instruction("vote.sync.any", at);
  const Brought* votes = meet(Aligned::kNo, {.number = predicate}, [](const Brought*) {});
  return std::any_of(votes, votes + kLanes, [](Brought vote) { return vote.number != 0; });
}

void wait_for_previous_kernel(Location at) {
  const Instruction instruction("griddepcontrol.wait", at);
  require_capability(90);
}

void set_max_registers(uint32_t count, Location at) {
  const Instruction instruction("setmaxnreg", at);
  require_capability(90);
  if (count % 8 || count < 24 || count > 256)
    fail_in(*self, concat(count, " registers, must be a multiple of 8 from 24 to 256"));
  meet(Aligned::kYes, {.number = count}, [](const Brought*) {});
}

void sync_warp(Location at) {
  const Instruction instruction("bar.warp.sync", at);
  meet(Aligned::kNo, {.number = 0}, [](const Brought*) {
    if (!grid->options.check_order) return;
    Thread* lanes = self->warp->lanes;
    ClockBuilder together;
    for (int lane = 0; lane < kLanes; ++lane) release(lanes[lane], together);
    const ClockRef all = together.take();
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane].known = all;
  });
}

}  // namespace rapt::emulator
