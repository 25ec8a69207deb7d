// SPDX-License-Identifier: Apache-2.0
//
// Counts that stand in for a profile: instructions, repeats, barriers and bank conflicts.
//
// A repeat reads up to eight blocks of each source and writes up to eight blocks. A bank group
// (block address modulo 16) serves one access per cycle, so a repeat needs as many read cycles as
// its most loaded group has blocks; cycles beyond the first are counted as read conflicts, and
// likewise for writes. Conflicts between reads and writes of different repeats depend on the
// depth of the hardware pipeline, which is not public, and are not counted. Source: asc-devkit
// docs/zh/guide/算子实践参考/SIMD算子性能优化/内存访问/避免UB的bank冲突/避免bank冲突（NPU架构版本2201）.md
#ifndef EMULATOR_STATISTICS_H_
#define EMULATOR_STATISTICS_H_

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "core.h"

namespace emu {

inline void CountInstruction(const char* name, uint64_t repeats) {
  for (auto& entry : Stats().entries) {
    if (entry.name == name) {
      ++entry.instructions;
      entry.repeats += repeats;
      return;
    }
  }
  Stats().entries.push_back({name, 1, repeats});
}

/// Accesses of one repeat by bank group.
class BankGroups {
 public:
  void Add(size_t block) { ++load_[block % load_.size()]; }
  uint64_t ExtraCycles(uint64_t ideal) const {
    const uint64_t most = *std::max_element(load_.begin(), load_.end());
    return most > ideal ? most - ideal : 0;
  }

 private:
  std::array<uint8_t, 16> load_{};
};

inline void PrintStatistics(std::FILE* file) {
  const Statistics& s = Stats();
  std::fprintf(file, "{\"barriers\": %llu, \"read_conflicts\": %llu, \"write_conflicts\": %llu, ",
               static_cast<unsigned long long>(s.barriers), static_cast<unsigned long long>(s.read_conflicts),
               static_cast<unsigned long long>(s.write_conflicts));
  std::fprintf(file, "\"bytes_in\": %llu, \"bytes_out\": %llu, \"instructions\": {",
               static_cast<unsigned long long>(s.bytes_in), static_cast<unsigned long long>(s.bytes_out));
  const char* separator = "";
  for (const auto& entry : s.entries) {
    std::fprintf(file, "%s\"%s\": [%llu, %llu]", separator, entry.name.c_str(),
                 static_cast<unsigned long long>(entry.instructions), static_cast<unsigned long long>(entry.repeats));
    separator = ", ";
  }
  std::fprintf(file, "}}");
}

}  // namespace emu

#endif  // EMULATOR_STATISTICS_H_
