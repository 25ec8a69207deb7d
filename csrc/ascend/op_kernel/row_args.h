// SPDX-License-Identifier: Apache-2.0
//
// The argument of the row kernel: plain data passed by value at launch.
//
// A kernel argument may be a POD structure of basic types (asc-devkit,
// docs/zh/guide/技术附录/CPP标准支持/语法限制/函数.md), so nothing has to be copied to the device
// per call and a captured graph replays the values it was captured with. Addresses are device
// addresses held as integers; 0 means absent.
#ifndef EAGLE3_QUAROT_ASCEND_ROW_ARGS_H_
#define EAGLE3_QUAROT_ASCEND_ROW_ARGS_H_

#include <cstdint>

#include "rotation_plan.h"

namespace eagle3_quarot {

constexpr uint32_t kMaxSlices = 8;   // most aux hidden states of one launch
constexpr uint32_t kMaxFactor = 36;  // largest +-1 factor of the vector kernel
constexpr uint32_t kMinPow2 = 16;    // smallest Hadamard factor of the vector kernel
constexpr uint32_t kSpanUnit = 256;  // a span is a multiple of this many elements

enum class ElementType : uint32_t { kBFloat16 = 0, kFloat16 = 1, kFloat32 = 2 };
enum class Direction : uint32_t { kUnrotate = 0, kRotate = 1 };
enum class Norm : uint32_t { kNone = 0, kSlice = 1, kConcat = 2 };

struct RowArgs {
  RotationPlan plan;
  uint32_t tokens;      // T
  uint32_t slices;      // A
  uint32_t span;        // elements transformed at once: whole blocks, divides hidden
  uint32_t buffers;     // 1, or 2 for double-buffered queues
  Direction direction;
  Norm norm;            // RMSNorm after un-rotation: none, per slice, over the A slices together
  float epsilon;        // of that norm
  uint32_t channel_is_float;  // 1: the channel vectors are fp32; 0: of the rows' type
  uint32_t id_bytes;          // 4 or 8

  uint64_t sources[kMaxSlices];  // A row sources of shape [T, H]; with ids: one table [V, H]
  uint64_t strides[kMaxSlices];  // elements from one row to the next, >= H
  uint64_t out;                  // [T, A * H], contiguous
  // [H] multiplier of each slice, the same or different ones: before a rotation (1/g), after an
  // un-rotation (gamma); absent for all or given for all.
  uint64_t channels[kMaxSlices];

  uint64_t scale;         // fp32 [b]: s, signs times 1/sqrt(b)
  uint64_t factor_codes;  // uint8 [k * k / 4], see small_factor.h; absent when k == 1

  uint64_t ids;  // int32 or int64 [T]: rows of the table to gather; absent for plain sources
  int64_t vocab_start;
  int64_t vocab_end;  // ids outside [vocab_start, vocab_end) give rows of zeros
};

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROW_ARGS_H_
