// SPDX-License-Identifier: Apache-2.0
//
// TransDataTo5HD for 32-bit elements: 16 source blocks of 8 lanes, transposed.
//
// Destinations 2l and 2l+1 receive lane l of source blocks 0-7 and 8-15. With one repeat the
// device adds the repeat strides to the addresses, with several they count from zero. Source:
// asc-devkit docs/zh/api/SIMD-API/基础API/Memory矢量计算/数据排布转换/TransDataTo5HD.md
#ifndef EMULATOR_TRANSPOSE_H_
#define EMULATOR_TRANSPOSE_H_

#include <cstring>

#include "statistics.h"
#include "tensors.h"

namespace AscendC {

struct TransDataTo5HDParams {
  bool dstHighHalf = false;
  bool srcHighHalf = false;
  uint8_t repeatTimes = 1;
  uint16_t dstRepStride = 0;
  uint16_t srcRepStride = 0;
};

template <typename T>
void TransDataTo5HD(uint64_t dst_list[16], uint64_t src_list[16], const TransDataTo5HDParams& params) {
  static_assert(sizeof(T) == 4, "only the 32-bit transpose is modelled (bf16 does not exist on A2/A3)");
  const uint32_t repeats = params.repeatTimes;
  if (repeats == 0) return;
  emu::Access access("TransDataTo5HD", emu::kV);
  emu::CountInstruction("TransDataTo5HD", repeats);
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    const size_t step = repeats == 1 ? 1 : repeat;
    emu::BankGroups reads;
    emu::BankGroups writes;
    T lanes[16][8];
    for (uint32_t i = 0; i < 16; ++i) {
      const auto* address = reinterpret_cast<const uint8_t*>(src_list[i]) + step * params.srcRepStride * emu::kBlockBytes;
      const size_t block = access.BlockAt(address);
      access.Read(block, emu::kBlockBytes, repeat, i);
      reads.Add(block);
      std::memcpy(lanes[i], address, emu::kBlockBytes);
    }
    for (uint32_t i = 0; i < 16; ++i) {
      auto* address = reinterpret_cast<uint8_t*>(dst_list[i]) + step * params.dstRepStride * emu::kBlockBytes;
      const size_t block = access.BlockAt(address);
      access.Write(block, emu::kBlockBytes, repeat, i);
      writes.Add(block);
      T out[8];
      for (uint32_t j = 0; j < 8; ++j) out[j] = lanes[i % 2 * 8 + j][i / 2];
      std::memcpy(address, out, sizeof out);
    }
    // 16 blocks take two cycles at 64 elements per cycle, so two accesses per group are free.
    emu::Stats().read_conflicts += reads.ExtraCycles(2);
    emu::Stats().write_conflicts += writes.ExtraCycles(2);
  }
}

}  // namespace AscendC

#endif  // EMULATOR_TRANSPOSE_H_
