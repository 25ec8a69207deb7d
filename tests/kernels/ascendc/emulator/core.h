// SPDX-License-Identifier: Apache-2.0
//
// The state of one emulated vector core and the way a violated rule ends the run.
//
// Cores run one after the other, each with a fresh, poisoned Unified Buffer. What makes a race
// visible is not concurrency but bookkeeping: see pipes.h.
#ifndef EMULATOR_CORE_H_
#define EMULATOR_CORE_H_

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace emu {

/// Ends the process: a rule of the device was broken. Tests match on "EMULATOR <rule>".
[[noreturn]] inline void Fail(const std::string& rule, const std::string& detail) {
  std::fprintf(stderr, "EMULATOR %s: %s\n", rule.c_str(), detail.c_str());
  std::fflush(stderr);
  std::_Exit(70);
}

// A macro, so that the text is only put together when the rule is broken.
#define EMULATOR_REQUIRE(condition, rule, detail) \
  do {                                            \
    if (!(condition)) emu::Fail(rule, detail);    \
  } while (false)

// Instruction queues of an AI vector core. S is the scalar unit, which issues all of them.
enum Pipe : int { kS = 0, kV = 1, kMte2 = 2, kMte3 = 3, kPipes = 4 };
inline const char* Name(int pipe) {
  static const char* const names[] = {"S", "V", "MTE2", "MTE3"};
  return names[pipe];
}

/// For each pipe, how many of its instructions are known to be complete.
using Clock = std::array<uint64_t, kPipes>;

/// One 32-byte block of the Unified Buffer.
struct Block {
  uint32_t initialised = 0;  // bit i: byte i was written since its buffer was handed out
  int writer = -1;           // pipe of the last write
  uint64_t write_time = 0;   // that pipe's issue count at the time
  Clock read_time{};         // last read by each pipe
  // The instruction that is executing: which of its repeats read or wrote the block last.
  uint64_t read_op = 0, write_op = 0;
  uint32_t read_repeat = 0, read_slot = 0, write_repeat = 0;
};

/// A hardware event of one type: the clock it publishes and whether it is set.
struct Event {
  bool set = false;
  bool queue_owned = false;
  Clock published{};
};

struct Statistics {
  struct Entry {
    std::string name;
    uint64_t instructions = 0;
    uint64_t repeats = 0;
  };
  std::vector<Entry> entries;
  uint64_t barriers = 0;
  uint64_t read_conflicts = 0;   // extra cycles, see statistics.h
  uint64_t write_conflicts = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
};

// Unified Buffer of __NPU_ARCH__ 2201: 192 KB, of which 256 B and 8 KB are reserved (asc-devkit
// docs/zh/guide/编程指南/高级编程/硬件实现/架构规格/NPU架构版本2201.md).
constexpr size_t kUnifiedBuffer = 192 * 1024;
constexpr size_t kUsable = kUnifiedBuffer - 256 - 8 * 1024;
constexpr size_t kBlockBytes = 32;
constexpr int kEventTypes = 8;
constexpr int kEventIds = 8;
constexpr int kUserEventIds = 6;  // ids 6 and 7 are taken by the framework

struct QueueState;

struct Core {
  int64_t index = 0;
  int64_t count = 1;

  std::unique_ptr<uint8_t, void (*)(void*)> unified{nullptr, std::free};
  std::vector<Block> blocks;
  size_t allocated = 0;
  int buffers = 0;
  std::array<int, 4> buffers_per_position{};
  std::vector<std::shared_ptr<QueueState>> queues;

  std::array<Clock, kPipes> known{};
  Clock issued{};
  uint64_t instruction = 0;
  std::array<std::array<Event, kEventIds>, kEventTypes> events{};
  bool pipe_alive = false;
};

inline Core& ThisCore() {
  static Core core;
  return core;
}
inline Statistics& Stats() {
  static Statistics statistics;
  return statistics;
}

/// Fresh core with a Unified Buffer full of `poison`.
inline void StartCore(int64_t index, int64_t count, uint8_t poison) {
  Core& core = ThisCore();
  core = Core{};
  core.index = index;
  core.count = count;
  core.unified.reset(static_cast<uint8_t*>(std::aligned_alloc(512, kUnifiedBuffer)));
  for (size_t i = 0; i < kUnifiedBuffer; ++i) core.unified.get()[i] = poison;
  core.blocks.assign(kUnifiedBuffer / kBlockBytes, Block{});
}

}  // namespace emu

#endif  // EMULATOR_CORE_H_
