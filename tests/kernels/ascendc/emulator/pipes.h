// SPDX-License-Identifier: Apache-2.0
//
// Happens-before between the pipes of a core.
//
// The pipes run asynchronously; only events and barriers order them. On a host everything runs in
// program order, so a missing barrier never changes a number. It is found by bookkeeping instead:
// every pipe counts the instructions it was given and knows, for every pipe, how many are complete
// (`known`). SetFlag<A_B> publishes what A knows once its earlier instructions are complete,
// WaitFlag<A_B> adds that to what B knows, PipeBarrier<P> makes P know itself. An access is a race
// when its pipe does not know that the conflicting earlier access is complete:
//
//   read  after write   also within one pipe: vector instructions overlap
//   write after write   also within one pipe
//   write after read    between different pipes; one pipe reads in order before it writes
//
// The scalar unit issues every instruction, so what it has read is read before anything it issues
// later. Sources: asc-devkit docs/zh/api/SIMD-API/基础API/同步控制/核内同步/
// {PipeBarrier(ISASI),SetFlag-WaitFlag(ISASI),核内同步能力概述}.md
#ifndef EMULATOR_PIPES_H_
#define EMULATOR_PIPES_H_

#include <algorithm>
#include <string>
#include <utility>

#include "core.h"

using event_t = int8_t;

enum pipe_t { PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };

namespace AscendC {
using TEventID = int8_t;
enum class HardEvent : uint8_t { MTE2_V, V_MTE2, MTE3_V, V_MTE3, MTE2_MTE3, MTE3_MTE2, V_S, S_V };
}  // namespace AscendC

namespace emu {

inline std::pair<Pipe, Pipe> PipesOf(AscendC::HardEvent event) {
  using AscendC::HardEvent;
  switch (event) {
    case HardEvent::MTE2_V: return {kMte2, kV};
    case HardEvent::V_MTE2: return {kV, kMte2};
    case HardEvent::MTE3_V: return {kMte3, kV};
    case HardEvent::V_MTE3: return {kV, kMte3};
    case HardEvent::MTE2_MTE3: return {kMte2, kMte3};
    case HardEvent::MTE3_MTE2: return {kMte3, kMte2};
    case HardEvent::V_S: return {kV, kS};
    case HardEvent::S_V: return {kS, kV};
  }
  Fail("event", "unknown event type");
}

inline std::string EventName(AscendC::HardEvent event, int id) {
  const auto [from, to] = PipesOf(event);
  return std::string(Name(from)) + "_" + Name(to) + " id " + std::to_string(id);
}

/// What `pipe` may promise to others once all its instructions so far are complete.
inline Clock Publish(Pipe pipe) {
  Clock clock = ThisCore().known[pipe];
  clock[pipe] = ThisCore().issued[pipe];
  return clock;
}

inline void Learn(Pipe pipe, const Clock& published) {
  Clock& known = ThisCore().known[pipe];
  for (int p = 0; p < kPipes; ++p) known[p] = std::max(known[p], published[p]);
}

inline void CheckRead(Pipe pipe, size_t index, const char* what) {
  const Block& block = ThisCore().blocks[index];
  if (block.writer >= 0 && ThisCore().known[pipe][block.writer] < block.write_time) {
    Fail("race read-after-write", std::string(what) + " on " + Name(pipe) + " reads block " + std::to_string(index) +
                                      " before the write by " + Name(block.writer) + " is known complete");
  }
}

inline void CheckWrite(Pipe pipe, size_t index, const char* what) {
  const Block& block = ThisCore().blocks[index];
  const Clock& known = ThisCore().known[pipe];
  if (block.writer >= 0 && known[block.writer] < block.write_time) {
    Fail("race write-after-write", std::string(what) + " on " + Name(pipe) + " overwrites block " + std::to_string(index) +
                                       " before the write by " + Name(block.writer) + " is known complete");
  }
  for (int reader = 0; reader < kPipes; ++reader) {
    if (reader != pipe && reader != kS && block.read_time[reader] > known[reader]) {
      Fail("race write-after-read", std::string(what) + " on " + Name(pipe) + " overwrites block " + std::to_string(index) +
                                        " while " + Name(reader) + " may still read it");
    }
  }
}

inline Event& EventOf(AscendC::HardEvent event, int id) {
  return ThisCore().events[static_cast<size_t>(event)][static_cast<size_t>(id)];
}

inline int FreeEventId(AscendC::HardEvent event) {
  for (int id = 0; id < kEventIds; ++id) {
    if (!EventOf(event, id).set) return id;
  }
  Fail("event", "all ids of " + EventName(event, 0) + " are in use");
}

/// Sets an event on behalf of a queue and returns its id.
inline int SetQueueEvent(AscendC::HardEvent event) {
  const int id = FreeEventId(event);
  EventOf(event, id) = Event{true, true, Publish(PipesOf(event).first)};
  return id;
}

inline void WaitQueueEvent(AscendC::HardEvent event, int id) {
  Learn(PipesOf(event).second, EventOf(event, id).published);
  EventOf(event, id) = Event{};
}

}  // namespace emu

namespace AscendC {

template <HardEvent event>
inline void SetFlag(TEventID id) {
  EMULATOR_REQUIRE(id >= 0 && id < emu::kUserEventIds, "SetFlag", "event id " + std::to_string(id) + " is reserved");
  emu::Event& slot = emu::EventOf(event, id);
  EMULATOR_REQUIRE(!slot.set, "SetFlag", emu::EventName(event, id) + " is already set");
  slot = emu::Event{true, false, emu::Publish(emu::PipesOf(event).first)};
}

template <HardEvent event>
inline void WaitFlag(TEventID id) {
  EMULATOR_REQUIRE(id >= 0 && id < emu::kUserEventIds, "WaitFlag", "event id " + std::to_string(id) + " is reserved");
  emu::Event& slot = emu::EventOf(event, id);
  EMULATOR_REQUIRE(slot.set && !slot.queue_owned, "WaitFlag",
               emu::EventName(event, id) + " was not set (the device would hang)");
  emu::Learn(emu::PipesOf(event).second, slot.published);
  slot = emu::Event{};
}

template <pipe_t pipe>
inline void PipeBarrier() {
  static_assert(pipe != PIPE_S, "PipeBarrier does not support PIPE_S");
  emu::Core& core = emu::ThisCore();
  ++emu::Stats().barriers;
  if constexpr (pipe == PIPE_ALL) {
    for (auto& known : core.known) known = core.issued;
  } else {
    constexpr emu::Pipe p = pipe == PIPE_V ? emu::kV : pipe == PIPE_MTE2 ? emu::kMte2 : emu::kMte3;
    core.known[p][p] = core.issued[p];
  }
}

inline int64_t GetBlockIdx() { return emu::ThisCore().index; }
inline int64_t GetBlockNum() { return emu::ThisCore().count; }

}  // namespace AscendC

#endif  // EMULATOR_PIPES_H_
