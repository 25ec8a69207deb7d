// SPDX-License-Identifier: Apache-2.0
//
// Unified Buffer accesses of one instruction, and the registry of global memory.
//
// Every access is checked for 32-byte alignment (relative to the start of the Unified Buffer, not
// to the host address), for bounds, for bytes never written, and for races (pipes.h). Global
// buffers are separate heap blocks, so AddressSanitizer sees an overrun too; the registry adds
// who wrote each 32-byte line: two cores, or a read after a write, have nothing that orders them.
#ifndef EMULATOR_MEMORY_H_
#define EMULATOR_MEMORY_H_

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core.h"
#include "pipes.h"

namespace emu {

inline size_t UnifiedOffset(const void* address) {
  return static_cast<size_t>(static_cast<const uint8_t*>(address) - ThisCore().unified.get());
}

/// Bits of the bytes [from, from + bytes) of a block.
inline uint32_t ByteMask(size_t from, size_t bytes) {
  return static_cast<uint32_t>(((uint64_t{1} << bytes) - 1) << from);
}

/// One instruction of a pipe that touches the Unified Buffer, repeat by repeat.
class Access {
 public:
  Access(const char* name, Pipe pipe) : name_(name), pipe_(pipe) {
    Core& core = ThisCore();
    ++core.issued[pipe];
    op_ = ++core.instruction;
  }

  /// Index of the block at `address`, which must be aligned and inside an InitBuffer area.
  size_t BlockAt(const void* address) const {
    const size_t offset = UnifiedOffset(address);
    EMULATOR_REQUIRE(offset % kBlockBytes == 0, "alignment",
            std::string(name_) + " operand at UB offset " + std::to_string(offset) + " is not 32-byte aligned");
    EMULATOR_REQUIRE(offset + kBlockBytes <= ThisCore().allocated, "bounds",
            std::string(name_) + " accesses UB offset " + std::to_string(offset) + " outside every buffer");
    return offset / kBlockBytes;
  }

  /// Reads `bytes` of a block as operand block `slot` of a repeat.
  void Read(size_t index, size_t bytes, uint32_t repeat, uint32_t slot) {
    Block& block = ThisCore().blocks[index];
    if (block.write_op == op_ && block.write_repeat < repeat) {
      Fail("overlap", std::string(name_) + " repeat " + std::to_string(repeat) + " reads what repeat " +
                          std::to_string(block.write_repeat) + " of the same instruction wrote");
    }
    if (block.write_op != op_) CheckRead(pipe_, index, name_);
    const uint32_t mask = ByteMask(0, bytes);
    EMULATOR_REQUIRE((block.initialised & mask) == mask, "uninitialised",
            std::string(name_) + " reads bytes of UB block " + std::to_string(index) + " that were never written");
    block.read_op = op_;
    block.read_repeat = repeat;
    block.read_slot = slot;
    block.read_time[pipe_] = ThisCore().issued[pipe_];
  }

  /// Writes `bytes` of a block as destination block `slot` of a repeat.
  void Write(size_t index, size_t bytes, uint32_t repeat, uint32_t slot) {
    Block& block = ThisCore().blocks[index];
    if (block.write_op == op_) {
      Fail("overlap", std::string(name_) + " writes UB block " + std::to_string(index) + " twice");
    }
    if (block.read_op == op_ && block.read_repeat == repeat && block.read_slot != slot) {
      Fail("overlap", std::string(name_) + ": source and destination overlap partly within a repeat");
    }
    CheckWrite(pipe_, index, name_);
    block.initialised |= ByteMask(0, bytes);
    block.writer = pipe_;
    block.write_time = ThisCore().issued[pipe_];
    block.write_op = op_;
    block.write_repeat = repeat;
  }

 private:
  const char* name_;
  Pipe pipe_;
  uint64_t op_;
};

/// A registered buffer of global memory.
struct GlobalBuffer {
  std::string name;
  uint8_t* begin;
  size_t bytes;
  bool writable;
  struct Line {
    int64_t writer = -1;
    int64_t reader = -1;  // a core that read the line, -2 when several did
  };
  std::vector<Line> lines;
};

inline std::map<const uint8_t*, GlobalBuffer>& GlobalBuffers() {
  static std::map<const uint8_t*, GlobalBuffer> buffers;
  return buffers;
}

inline void RegisterGlobal(const std::string& name, void* begin, size_t bytes, bool writable) {
  auto* base = static_cast<uint8_t*>(begin);
  GlobalBuffers()[base] = GlobalBuffer{name, base, bytes, writable, {}};
  GlobalBuffers()[base].lines.resize(bytes / kBlockBytes + 1);
}

inline GlobalBuffer& FindGlobal(const void* address, size_t bytes, const char* what) {
  const auto* p = static_cast<const uint8_t*>(address);
  auto it = GlobalBuffers().upper_bound(p);
  EMULATOR_REQUIRE(it != GlobalBuffers().begin(), "global bounds", std::string(what) + " outside every tensor");
  GlobalBuffer& buffer = std::prev(it)->second;
  EMULATOR_REQUIRE(p + bytes <= buffer.begin + buffer.bytes, "global bounds",
          std::string(what) + " of " + std::to_string(bytes) + " bytes at offset " +
              std::to_string(p - buffer.begin) + " leaves tensor '" + buffer.name + "' of " +
              std::to_string(buffer.bytes) + " bytes");
  return buffer;
}

inline void GlobalRead(const void* address, size_t bytes, const char* what) {
  GlobalBuffer& buffer = FindGlobal(address, bytes, what);
  const size_t first = static_cast<size_t>(static_cast<const uint8_t*>(address) - buffer.begin);
  for (size_t line = first / kBlockBytes; line <= (first + bytes - 1) / kBlockBytes; ++line) {
    auto& entry = buffer.lines[line];
    EMULATOR_REQUIRE(entry.writer < 0, "global race",
            std::string(what) + " reads a line of '" + buffer.name + "' that core " +
                std::to_string(entry.writer) + " wrote in this launch");
    const int64_t core = ThisCore().index;
    entry.reader = entry.reader == -1 || entry.reader == core ? core : -2;
  }
}

inline void GlobalWrite(const void* address, size_t bytes, const char* what) {
  GlobalBuffer& buffer = FindGlobal(address, bytes, what);
  EMULATOR_REQUIRE(buffer.writable, "global bounds", std::string(what) + " writes the read-only tensor '" + buffer.name + "'");
  const size_t first = static_cast<size_t>(static_cast<const uint8_t*>(address) - buffer.begin);
  for (size_t line = first / kBlockBytes; line <= (first + bytes - 1) / kBlockBytes; ++line) {
    auto& entry = buffer.lines[line];
    EMULATOR_REQUIRE(entry.writer < 0, "global race",
            std::string(what) + ": a line of '" + buffer.name + "' is written twice in one launch");
    EMULATOR_REQUIRE(entry.reader == -1 || entry.reader == ThisCore().index, "global race",
            std::string(what) + ": a line of '" + buffer.name + "' is written while another core may read it");
    entry.writer = ThisCore().index;
  }
}

}  // namespace emu

#endif  // EMULATOR_MEMORY_H_
