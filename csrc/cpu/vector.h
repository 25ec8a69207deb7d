// SPDX-License-Identifier: Apache-2.0
//
// Vectors of floats of the instruction set that this file is compiled for, in the vector extensions
// of GCC and Clang. Intrinsics only where the extensions have no word (fp16) or compilers make several
// instructions of it (16 bits to 32 and back).
//
// Everything lives in a namespace of its own per instruction set (EAGLE3_QUAROT_ISA), and nothing
// calls a template of the standard library: the linker merges equal inline functions, and must not
// take an AVX-512 copy for a processor without it.
#ifndef EAGLE3_QUAROT_CPU_VECTOR_H_
#define EAGLE3_QUAROT_CPU_VECTOR_H_

#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define EAGLE3_QUAROT_INLINE inline __attribute__((always_inline))

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

// kRadix vectors are transformed in registers at once; it leaves a few registers free.
#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr int kLanes = 16;
constexpr int kRadix = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kRadix = 8;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
constexpr int kRadix = 16;
#else
constexpr int kLanes = 4;
constexpr int kRadix = 8;
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));
typedef int32_t Lanes __attribute__((vector_size(4 * kLanes)));

EAGLE3_QUAROT_INLINE Vector Broadcast(float value) { return value - Vector{}; }

template <class To, class From>
EAGLE3_QUAROT_INLINE To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "sizes differ");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
EAGLE3_QUAROT_INLINE T LoadUnaligned(const void* memory) {
  T value;
  __builtin_memcpy(&value, memory, sizeof value);
  return value;
}

// ---- lanes

// NaNs without a payload. One in the lower half would carry over when the upper half is rounded.
EAGLE3_QUAROT_INLINE Vector WithoutPayloads(Vector value) {
  const Bits is_number = BitCast<Bits>(value == value);
  return BitCast<Vector>((BitCast<Bits>(value) & is_number) | (~is_number & 0x7fc00000u));
}

// The partner of every lane in a butterfly of distance kDistance: lane i ^ kDistance.
template <int kDistance, int... kLane>
EAGLE3_QUAROT_INLINE Vector SwapLanes(Vector value, std::integer_sequence<int, kLane...>) {
#if defined(__clang__)
  return __builtin_shufflevector(value, value, (kLane ^ kDistance)...);
#else
  return __builtin_shuffle(value, Lanes{(kLane ^ kDistance)...});
#endif
}

// Lane kLane of every four in all four of them.
template <int kLane, int... kIndex>
EAGLE3_QUAROT_INLINE Vector SpreadLane(Vector value, std::integer_sequence<int, kIndex...>) {
#if defined(__clang__)
  return __builtin_shufflevector(value, value, (kIndex / 4 * 4 + kLane)...);
#else
  return __builtin_shuffle(value, Lanes{(kIndex / 4 * 4 + kLane)...});
#endif
}

// a + b in the lower lane of a pair (a, b), a - b in the upper one.
template <int kDistance, int... kLane>
EAGLE3_QUAROT_INLINE Vector LaneButterfly(Vector value, std::integer_sequence<int, kLane...> lanes) {
  const Vector sign = {((kLane & kDistance) != 0 ? -1.0f : 1.0f)...};
  return SwapLanes<kDistance>(value, lanes) + value * sign;
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_VECTOR_H_
