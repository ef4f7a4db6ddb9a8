#include "emulator/meeting.hpp"

#include <cstring>

#include "core/check.hpp"
#include "emulator/instructions.hpp"
#include "emulator/order.hpp"

namespace rapt::emulator {

static bool same_line(const Location& a, const Location& b) {
  return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name();
}

bool join_meeting(Aligned aligned, uint64_t value, const uint64_t** values) {
  Thread& t = *self;
  Warp& warp = *t.warp;
  if (warp.live != kAllLanes) fail_in(t, "needs all 32 lanes, and some have ended");
  Meeting* meeting = &warp.meetings[0];
  for (Meeting& other : warp.meetings)
    if (other.arrived || (meeting->unread && !meeting->arrived && !other.unread)) meeting = &other;
  const uint32_t bit = 1u << t.lane;
  if (!meeting->arrived) meeting->what = t.now;
  if (std::strcmp(meeting->what.instruction, t.now.instruction) != 0 ||
      (aligned == Aligned::kYes && !same_line(meeting->what.at, t.now.at)))
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
  return static_cast<uint32_t>(
      meet(Aligned::kNo, value, [](const uint64_t*) {})[source_lane % kLanes]);
}

bool any_lane(bool predicate, Location at) {
  const Instruction instruction("vote.sync.any", at);
  const uint64_t* votes = meet(Aligned::kNo, predicate, [](const uint64_t*) {});
  return std::any_of(votes, votes + kLanes, [](uint64_t vote) { return vote != 0; });
}

void sync_warp(Location at) {
  const Instruction instruction("bar.warp.sync", at);
  meet(Aligned::kNo, 0, [](const uint64_t*) {
    if (!grid->options.check_order) return;
    Thread* lanes = self->warp->lanes;
    ClockBuilder together;
    for (int lane = 0; lane < kLanes; ++lane) release(lanes[lane], together);
    const ClockRef all = together.take();
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane].known = all;
  });
}

}  // namespace rapt::emulator
