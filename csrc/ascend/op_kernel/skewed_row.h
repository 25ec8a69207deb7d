// SPDX-License-Identifier: Apache-2.0
//
// Where an element of an fp32 row lives in its Unified Buffer area.
//
// The Unified Buffer has 16 bank groups, selected by the 32-byte block address modulo 16, and
// one group serves one access per cycle (asc-devkit, docs/zh/guide/算子实践参考/
// SIMD算子性能优化/内存访问/避免UB的bank冲突/避免bank冲突（NPU架构版本2201）.md). Every butterfly
// reads one operand from the lower and one from the upper half of a row; half a row is a multiple
// of 16 blocks, so both would fall into the same groups. Moving the upper half 8 blocks further
// makes the two sources of a repeat use disjoint groups.
#ifndef EAGLE3_QUAROT_ASCEND_SKEWED_ROW_H_
#define EAGLE3_QUAROT_ASCEND_SKEWED_ROW_H_

#include "kernel_operator.h"

namespace eagle3_quarot {

constexpr uint32_t kBlock = 8;    // fp32 elements of a 32-byte block
constexpr uint32_t kRepeat = 64;  // fp32 elements of one vector repeat (256 bytes)
constexpr uint32_t kSkew = 64;    // elements between the two halves: 8 blocks
// Room for one row beyond its elements: the skew or the padding of the lane rows, and the next
// area starts in bank group 0 again.
constexpr uint32_t kRowPadding = 128;

struct SkewedRow {
  uint32_t length;
  uint32_t skew;

  __aicore__ inline uint32_t At(uint32_t index) const {
    return index < length / 2 ? index : index + skew;
  }
  __aicore__ inline uint32_t Half() const { return length / 2; }
  __aicore__ inline uint32_t Upper() const { return length / 2 + skew; }
};

__aicore__ inline void Swap(AscendC::LocalTensor<float>& a, AscendC::LocalTensor<float>& b) {
  AscendC::LocalTensor<float> t = a;
  a = b;
  b = t;
}

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_SKEWED_ROW_H_
