// SPDX-License-Identifier: Apache-2.0
//
// Fast Walsh-Hadamard transform of every m-element tile of a row, natural order in and out.
//
// Element i of a tile has log2(m) index bits; each stage turns one bit into sum and difference.
// The vector unit moves whole 32-byte blocks, so the three bits inside a block need the block
// transposed first:
//
//   1. ToLanes:    [L/8 positions][8 lanes] -> [8 lanes][L/8 positions]
//   2. LaneStages: three stages on whole lane rows
//   3. FromLanes:  back to blocks, written in the order (position in tile, tile)
//   4. BlockStages: log2(m) - 3 stages on blocks
//
// LaneStages and BlockStages use the same constant geometry: the bit in question is the top bit
// of the index, so operands are the lower and the upper half of the row, and sum and difference
// go to places 2j and 2j+1. The processed bit becomes the lowest one and the next bit moves to
// the top: every stage has the same addresses and after the last one the order is natural again.
//
// BlockStages does not know about tiles. FromLanes puts the tile number below all position bits;
// after log2(m) - 3 rotations of the position bits the tile number is back on top. One set of
// whole-row instructions therefore serves one tile of 8192 elements or 28 tiles of 256.
#ifndef EAGLE3_QUAROT_ASCEND_HADAMARD_STAGES_H_
#define EAGLE3_QUAROT_ASCEND_HADAMARD_STAGES_H_

#include "kernel_operator.h"
#include "skewed_row.h"

namespace eagle3_quarot {

class HadamardStages {
 public:
  __aicore__ inline void Init(uint32_t length, uint32_t pow2) {
    row_ = SkewedRow{length, kSkew};
    pitch_ = length / kLanes + kLanePadding;
    tiles_ = length / pow2;
    positions_ = pow2 / kBlock;
    stages_ = 0;
    for (uint32_t n = positions_; n > 1; n >>= 1) ++stages_;
  }

  /// Transforms the row in `a`. The result is in `a` again, `b` is clobbered; the two tensors may
  /// have changed places.
  __aicore__ inline void Apply(AscendC::LocalTensor<float>& a, AscendC::LocalTensor<float>& b) const {
    ToLanes(b, a);
    AscendC::PipeBarrier<PIPE_V>();
    Swap(a, b);
    LaneStages(a, b);
    FromLanes(b, a);
    AscendC::PipeBarrier<PIPE_V>();
    Swap(a, b);
    BlockStages(a, b);
  }

 private:
  static constexpr uint32_t kLanes = 8;
  // Lane rows are two blocks apart in their bank group (for lengths that are multiples of 1024):
  // the 16 blocks of a transpose fall into 16 groups, and lanes l and l + 4 into groups 8 apart.
  static constexpr uint32_t kLanePadding = 2 * kBlock;
  static_assert(kLanes * kLanePadding <= kRowPadding, "lane rows need more room than a row area has");
  static constexpr uint32_t kUnit = 16;                     // positions of one transpose
  static constexpr uint32_t kUnitElements = kUnit * kBlock;  // 128

  // One repeat transposes 16 blocks: destinations 2l and 2l+1 receive lane l of the first and of
  // the last eight source blocks (asc-devkit, .../数据排布转换/TransDataTo5HD.md, 32-bit case).
  // With a single repeat the device adds the strides to the addresses, so they must be zero.
  __aicore__ inline void Transpose(uint64_t (&dst)[16], uint64_t (&src)[16], uint32_t repeats,
                                   uint32_t dst_stride, uint32_t src_stride) const {
    AscendC::TransDataTo5HDParams params;
    params.repeatTimes = static_cast<uint8_t>(repeats);
    params.dstRepStride = static_cast<uint16_t>(repeats == 1 ? 0 : dst_stride);
    params.srcRepStride = static_cast<uint16_t>(repeats == 1 ? 0 : src_stride);
    AscendC::TransDataTo5HD<float>(dst, src, params);
  }

  __aicore__ inline uint64_t Address(const AscendC::LocalTensor<float>& t, uint32_t index) const {
    return static_cast<uint64_t>(t[index].GetPhyAddr());
  }

  __aicore__ inline void ToLanes(const AscendC::LocalTensor<float>& dst,
                                 const AscendC::LocalTensor<float>& src) const {
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t first = half * row_.Half();
      uint64_t to[16];
      uint64_t from[16];
      for (uint32_t i = 0; i < 16; ++i) {
        from[i] = Address(src, row_.At(first + i * kBlock));
        to[i] = Address(dst, (i / 2) * pitch_ + first / kBlock + (i % 2) * kBlock);
      }
      Transpose(to, from, row_.Half() / kUnitElements, 2, kUnit);
    }
  }

  __aicore__ inline void LaneStages(AscendC::LocalTensor<float>& a, AscendC::LocalTensor<float>& b) const {
    const int32_t count = static_cast<int32_t>(row_.length / kLanes);
    for (uint32_t stage = 0; stage < 3; ++stage) {
      for (uint32_t lane = 0; lane < kLanes / 2; ++lane) {
        const auto lower = a[lane * pitch_];
        const auto upper = a[(lane + kLanes / 2) * pitch_];
        AscendC::Add(b[2 * lane * pitch_], lower, upper, count);
        AscendC::Sub(b[(2 * lane + 1) * pitch_], lower, upper, count);
      }
      AscendC::PipeBarrier<PIPE_V>();
      Swap(a, b);
    }
  }

  // Block of position p, p = tile * positions + i, in the order BlockStages starts from.
  __aicore__ inline uint32_t ShuffledBlock(uint32_t p) const {
    return (p % positions_) * tiles_ + p / positions_;
  }

  __aicore__ inline void UnitFromLanes(const AscendC::LocalTensor<float>& dst,
                                       const AscendC::LocalTensor<float>& src, uint32_t first,
                                       uint32_t repeats, uint32_t dst_stride, uint32_t src_stride) const {
    uint64_t to[16];
    uint64_t from[16];
    for (uint32_t i = 0; i < 16; ++i) {
      from[i] = Address(src, (i % kLanes) * pitch_ + first + (i / kLanes) * kBlock);
      to[i] = Address(dst, row_.At(ShuffledBlock(first + (i % 2) * kBlock + i / 2) * kBlock));
    }
    Transpose(to, from, repeats, dst_stride, src_stride);
  }

  // A destination list is fixed for all repeats, so repeats may only walk where the address is
  // linear: over tiles (positions fixed), or over positions inside one half of one tile.
  __aicore__ inline void FromLanes(const AscendC::LocalTensor<float>& dst,
                                   const AscendC::LocalTensor<float>& src) const {
    if (positions_ < kUnit) {
      const uint32_t tiles_per_unit = kUnit / positions_;
      UnitFromLanes(dst, src, 0, tiles_ / tiles_per_unit, tiles_per_unit, kUnit / kBlock);
      return;
    }
    const uint32_t units = positions_ / kUnit;
    if (units <= 2 * tiles_) {
      for (uint32_t unit = 0; unit < units; ++unit) {
        UnitFromLanes(dst, src, unit * kUnit, tiles_, 1, positions_ / kBlock);
      }
      return;
    }
    for (uint32_t tile = 0; tile < tiles_; ++tile) {
      for (uint32_t half = 0; half < 2; ++half) {
        UnitFromLanes(dst, src, tile * positions_ + half * positions_ / 2, units / 2, kUnit * tiles_,
                      kUnit / kBlock);
      }
    }
  }

  __aicore__ inline void BlockStages(AscendC::LocalTensor<float>& a, AscendC::LocalTensor<float>& b) const {
    const uint32_t upper = row_.Upper();
    const uint32_t quarter = row_.length / 4;
    const uint8_t repeats = static_cast<uint8_t>(quarter / kRepeat);
    const uint64_t mask = kRepeat;
    const AscendC::BinaryRepeatParams spread(2, 1, 1, 16, 8, 8);
    for (uint32_t stage = 0; stage < stages_; ++stage) {
      AscendC::Add(b, a, a[upper], mask, repeats, spread);
      AscendC::Sub(b[kBlock], a, a[upper], mask, repeats, spread);
      AscendC::Add(b[upper], a[quarter], a[upper + quarter], mask, repeats, spread);
      AscendC::Sub(b[upper + kBlock], a[quarter], a[upper + quarter], mask, repeats, spread);
      AscendC::PipeBarrier<PIPE_V>();
      Swap(a, b);
    }
  }

  SkewedRow row_;
  uint32_t pitch_;      // elements from one lane row to the next
  uint32_t tiles_;      // Hadamard tiles of the row
  uint32_t positions_;  // blocks of one tile
  uint32_t stages_;     // block stages
};

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_HADAMARD_STAGES_H_
