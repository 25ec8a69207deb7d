// SPDX-License-Identifier: Apache-2.0
//
// Vector arithmetic: two forms of every instruction, "first count elements" and mask/repeat.
//
// A repeat covers 256 bytes of the widest operand, eight blocks. Strides have the integer types of
// the device, so a value that does not fit is a -Wconversion error in the kernel. count 0 and
// repeat 0 do nothing. Arithmetic exists for half, float, int16 and int32, never for bf16; what
// this kernel does not use (half, int) is not modelled and does not compile. Sources: asc-devkit
// docs/zh/api/SIMD-API/基础API/Memory矢量计算/{基础算术,类型转换,数据填充,归约计算}/*.md,
// .../SIMD计算说明/高维切分.md and docs/zh/api/SIMD-API/通用说明和约束.md (overlap, alignment)
#ifndef EMULATOR_VECTOR_OPS_H_
#define EMULATOR_VECTOR_OPS_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "statistics.h"
#include "tensors.h"
#include "types.h"

namespace AscendC {

struct BinaryRepeatParams {
  uint8_t dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1;
  uint8_t dstRepStride = 8, src0RepStride = 8, src1RepStride = 8;
  BinaryRepeatParams() = default;
  BinaryRepeatParams(uint8_t dst_blk, uint8_t src0_blk, uint8_t src1_blk, uint8_t dst_rep, uint8_t src0_rep,
                     uint8_t src1_rep)
      : dstBlkStride(dst_blk), src0BlkStride(src0_blk), src1BlkStride(src1_blk), dstRepStride(dst_rep),
        src0RepStride(src0_rep), src1RepStride(src1_rep) {}
};

enum class RoundMode { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };

namespace detail {

constexpr uint32_t kLanes = 64;      // fp32 elements of a repeat
constexpr uint32_t kBlocks = 8;      // blocks of a repeat
constexpr uint32_t kPerBlock = 8;    // fp32 elements of a block

/// An operand of a strided instruction.
struct Operand {
  uint8_t* data;
  size_t bytes;
  uint32_t block_stride;
  uint32_t repeat_stride;

  uint8_t* Block(uint32_t repeat, uint32_t block) const {
    return data + (static_cast<size_t>(repeat) * repeat_stride + static_cast<size_t>(block) * block_stride) *
                      emu::kBlockBytes;
  }
};

inline Operand Contiguous(const LocalTensor<float>& t) { return {t.data(), t.bytes(), 1, kBlocks}; }
inline Operand Strided(const LocalTensor<float>& t, uint32_t block, uint32_t repeat) {
  return {t.data(), t.bytes(), block, repeat};
}

inline void CheckInside(const char* name, const Operand& operand, const uint8_t* address, size_t bytes) {
  EMULATOR_REQUIRE(address + bytes <= operand.data + operand.bytes, "bounds",
               std::string(name) + " runs past the end of its tensor");
}

/// Elements of block `block` that a repeat with `lanes` active elements covers.
inline uint32_t ActiveLanes(uint32_t lanes, uint32_t block) {
  const uint32_t before = block * kPerBlock;
  return lanes <= before ? 0 : std::min(kPerBlock, lanes - before);
}

/// One fp32 instruction with `sources` sources: active lanes of each repeat are given by `lanes`.
template <int sources, typename Lanes, typename Function>
void Execute(const char* name, const Operand& dst, const Operand (&src)[sources], uint32_t repeats, Lanes lanes,
             Function function) {
  if (repeats == 0) return;
  EMULATOR_REQUIRE(dst.block_stride != 0, "stride", std::string(name) + " with dstBlkStride 0");
  emu::Access access(name, emu::kV);
  emu::CountInstruction(name, repeats);
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    emu::BankGroups reads;
    emu::BankGroups writes;
    float in[sources][kLanes];
    const uint32_t active = lanes(repeat);
    for (int s = 0; s < sources; ++s) {
      for (uint32_t block = 0; block < kBlocks; ++block) {
        const uint32_t n = ActiveLanes(active, block);
        if (n == 0) break;
        const uint8_t* address = src[s].Block(repeat, block);
        CheckInside(name, src[s], address, n * sizeof(float));
        const size_t index = access.BlockAt(address);
        access.Read(index, n * sizeof(float), repeat, block);
        // The same block as both sources is one access.
        if (s == 0 || src[0].Block(repeat, block) != address) reads.Add(index);
        std::memcpy(&in[s][block * kPerBlock], address, n * sizeof(float));
      }
    }
    for (uint32_t block = 0; block < kBlocks; ++block) {
      const uint32_t n = ActiveLanes(active, block);
      if (n == 0) break;
      uint8_t* address = dst.Block(repeat, block);
      CheckInside(name, dst, address, n * sizeof(float));
      const size_t index = access.BlockAt(address);
      access.Write(index, n * sizeof(float), repeat, block);
      writes.Add(index);
      float out[kPerBlock];
      for (uint32_t i = 0; i < n; ++i) {
        const uint32_t lane = block * kPerBlock + i;
        if constexpr (sources == 2) {
          out[i] = function(in[0][lane], in[1][lane]);
        } else {
          out[i] = function(in[0][lane]);
        }
      }
      std::memcpy(address, out, n * sizeof(float));
    }
    emu::Stats().read_conflicts += reads.ExtraCycles(1);
    emu::Stats().write_conflicts += writes.ExtraCycles(1);
  }
}

/// Repeats and active lanes of the "first count elements" form.
inline uint32_t RepeatsFor(int32_t count) {
  EMULATOR_REQUIRE(count >= 0, "count", "negative element count");
  return (static_cast<uint32_t>(count) + kLanes - 1) / kLanes;
}
inline auto CountLanes(int32_t count) {
  return [count](uint32_t repeat) { return std::min(kLanes, static_cast<uint32_t>(count) - repeat * kLanes); };
}

template <typename Function>
void Binary(const char* name, const LocalTensor<float>& dst, const LocalTensor<float>& a,
            const LocalTensor<float>& b, int32_t count, Function function) {
  Execute<2>(name, Contiguous(dst), {Contiguous(a), Contiguous(b)}, RepeatsFor(count), CountLanes(count), function);
}

template <typename Function>
void Binary(const char* name, const LocalTensor<float>& dst, const LocalTensor<float>& a,
            const LocalTensor<float>& b, uint64_t mask, uint8_t repeats, const BinaryRepeatParams& p,
            Function function) {
  EMULATOR_REQUIRE(mask >= 1 && mask <= kLanes, "mask", std::string(name) + " mask " + std::to_string(mask));
  Execute<2>(name, Strided(dst, p.dstBlkStride, p.dstRepStride),
             {Strided(a, p.src0BlkStride, p.src0RepStride), Strided(b, p.src1BlkStride, p.src1RepStride)}, repeats,
             [mask](uint32_t) { return static_cast<uint32_t>(mask); }, function);
}

template <typename Function>
void Unary(const char* name, const LocalTensor<float>& dst, const LocalTensor<float>& a, int32_t count,
           Function function) {
  Execute<1>(name, Contiguous(dst), {Contiguous(a)}, RepeatsFor(count), CountLanes(count), function);
}

/// The device's square root and division are not correctly rounded; nothing may depend on it.
inline float Perturb(float value) {
  const uint32_t bits = emu::Bits(value);
  if (!std::isfinite(value) || value == 0.0f) return value;
  const float towards = (bits * 2654435761u >> 31) != 0 ? std::numeric_limits<float>::infinity() : 0.0f;
  return std::nextafter(value, towards);
}

}  // namespace detail

#define EMULATOR_BINARY(NAME, EXPRESSION)                                                                      \
  inline void NAME(const LocalTensor<float>& dst, const LocalTensor<float>& src0, const LocalTensor<float>& src1, \
                   const int32_t& count) {                                                                     \
    detail::Binary(#NAME, dst, src0, src1, count, [](float x, float y) { return EXPRESSION; });                \
  }                                                                                                            \
  inline void NAME(const LocalTensor<float>& dst, const LocalTensor<float>& src0, const LocalTensor<float>& src1, \
                   uint64_t mask, const uint8_t repeatTime, const BinaryRepeatParams& params) {                \
    detail::Binary(#NAME, dst, src0, src1, mask, repeatTime, params,                                           \
                   [](float x, float y) { return EXPRESSION; });                                               \
  }
EMULATOR_BINARY(Add, x + y)
EMULATOR_BINARY(Sub, x - y)
EMULATOR_BINARY(Mul, x* y)
EMULATOR_BINARY(Div, detail::Perturb(x / y))
#undef EMULATOR_BINARY

inline void Muls(const LocalTensor<float>& dst, const LocalTensor<float>& src, const float& scalar,
                 const int32_t& count) {
  detail::Unary("Muls", dst, src, count, [scalar](float x) { return x * scalar; });
}
inline void Adds(const LocalTensor<float>& dst, const LocalTensor<float>& src, const float& scalar,
                 const int32_t& count) {
  detail::Unary("Adds", dst, src, count, [scalar](float x) { return x + scalar; });
}
inline void Sqrt(const LocalTensor<float>& dst, const LocalTensor<float>& src, const int32_t& count) {
  detail::Unary("Sqrt", dst, src, count, [](float x) { return detail::Perturb(std::sqrt(x)); });
}

inline void Duplicate(const LocalTensor<float>& dst, const float& scalar, const int32_t& count) {
  const uint32_t repeats = detail::RepeatsFor(count);
  if (repeats == 0) return;
  emu::Access access("Duplicate", emu::kV);
  emu::CountInstruction("Duplicate", repeats);
  const auto lanes = detail::CountLanes(count);
  const detail::Operand operand = detail::Contiguous(dst);
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    for (uint32_t block = 0; block < detail::kBlocks; ++block) {
      const uint32_t n = detail::ActiveLanes(lanes(repeat), block);
      if (n == 0) break;
      uint8_t* address = operand.Block(repeat, block);
      detail::CheckInside("Duplicate", operand, address, n * sizeof(float));
      access.Write(access.BlockAt(address), n * sizeof(float), repeat, block);
      float out[detail::kPerBlock];
      std::fill(out, out + n, scalar);
      std::memcpy(address, out, n * sizeof(float));
    }
  }
}

/// Sum of the first `count` elements into dst[0]: a binary tree inside a repeat, repeats in order
/// (the accumulation the documentation gives for this form on A2/A3). `workspace` must have the
/// documented size even so, because other forms and devices use it.
inline void ReduceSum(const LocalTensor<float>& dst, const LocalTensor<float>& src,
                      const LocalTensor<float>& workspace, const int32_t count) {
  const uint32_t repeats = detail::RepeatsFor(count);
  if (repeats == 0) return;
  const uint32_t partial = std::max<uint32_t>(1, static_cast<uint32_t>(count) / detail::kLanes);
  EMULATOR_REQUIRE(workspace.GetSize() >= (partial + 7) / 8 * 8, "ReduceSum",
               "sharedTmpBuffer holds " + std::to_string(workspace.GetSize()) + " elements, needs " +
                   std::to_string((partial + 7) / 8 * 8));
  emu::Access access("ReduceSum", emu::kV);
  emu::CountInstruction("ReduceSum", repeats);
  const auto lanes = detail::CountLanes(count);
  const detail::Operand operand = detail::Contiguous(src);
  float total = 0.0f;
  for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
    float tree[detail::kLanes] = {};
    for (uint32_t block = 0; block < detail::kBlocks; ++block) {
      const uint32_t n = detail::ActiveLanes(lanes(repeat), block);
      if (n == 0) break;
      const uint8_t* address = operand.Block(repeat, block);
      detail::CheckInside("ReduceSum", operand, address, n * sizeof(float));
      access.Read(access.BlockAt(address), n * sizeof(float), repeat, block);
      std::memcpy(&tree[block * detail::kPerBlock], address, n * sizeof(float));
    }
    for (uint32_t width = detail::kLanes / 2; width > 0; width /= 2) {
      for (uint32_t i = 0; i < width; ++i) tree[i] = tree[2 * i] + tree[2 * i + 1];
    }
    total += tree[0];
  }
  access.Write(access.BlockAt(dst.data()), sizeof(float), repeats, 0);
  std::memcpy(dst.data(), &total, sizeof total);
}

namespace detail {

template <typename D, typename S, typename Function>
void Convert(const LocalTensor<D>& dst, const LocalTensor<S>& src, uint32_t count, Function function) {
  const uint32_t repeats = (count + kLanes - 1) / kLanes;  // both types differ in size; fp32 is the wider
  if (repeats == 0) return;
  EMULATOR_REQUIRE(static_cast<size_t>(count) * sizeof(D) <= dst.bytes(), "bounds", "Cast past the end of its destination");
  EMULATOR_REQUIRE(static_cast<size_t>(count) * sizeof(S) <= src.bytes(), "bounds", "Cast past the end of its source");
  emu::Access access("Cast", emu::kV);
  emu::CountInstruction("Cast", repeats);
  const uint32_t src_per_block = emu::kBlockBytes / sizeof(S);
  const uint32_t dst_per_block = emu::kBlockBytes / sizeof(D);
  for (uint32_t first = 0; first < count; first += src_per_block) {
    const uint32_t n = std::min(src_per_block, count - first);
    access.Read(access.BlockAt(src.data() + first * sizeof(S)), n * sizeof(S), 0, 0);
  }
  for (uint32_t first = 0; first < count; first += dst_per_block) {
    const uint32_t n = std::min(dst_per_block, count - first);
    access.Write(access.BlockAt(dst.data() + first * sizeof(D)), n * sizeof(D), 0, 0);
  }
  for (uint32_t i = 0; i < count; ++i) {
    S in;
    std::memcpy(&in, src.data() + i * sizeof(S), sizeof in);
    const D out = function(in);
    std::memcpy(dst.data() + i * sizeof(D), &out, sizeof out);
  }
}

}  // namespace detail

/// 16-bit to fp32 is exact and takes only CAST_NONE.
template <typename S>
void Cast(const LocalTensor<float>& dst, const LocalTensor<S>& src, const RoundMode& mode, uint32_t count) {
  static_assert(std::is_same_v<S, half> || std::is_same_v<S, bfloat16_t>, "cast not modelled");
  EMULATOR_REQUIRE(mode == RoundMode::CAST_NONE, "Cast", "16-bit to float takes only CAST_NONE");
  detail::Convert(dst, src, count, [](S value) { return emu::Widen(value); });
}

/// fp32 to 16 bit. bf16 has no CAST_NONE; only round-to-nearest-even is modelled.
template <typename D>
void Cast(const LocalTensor<D>& dst, const LocalTensor<float>& src, const RoundMode& mode, uint32_t count) {
  static_assert(std::is_same_v<D, half> || std::is_same_v<D, bfloat16_t>, "cast not modelled");
  EMULATOR_REQUIRE((mode != RoundMode::CAST_NONE || !std::is_same_v<D, bfloat16_t>), "Cast",
               "float to bf16 has no CAST_NONE");
  EMULATOR_REQUIRE(mode == RoundMode::CAST_NONE || mode == RoundMode::CAST_RINT, "Cast", "rounding mode not modelled");
  detail::Convert(dst, src, count, [](float value) {
    D narrow;
    emu::RoundNearest(value, narrow);
    return narrow;
  });
}

}  // namespace AscendC

#endif  // EMULATOR_VECTOR_OPS_H_
