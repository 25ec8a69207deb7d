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
typedef uint16_t HalfBits __attribute__((vector_size(2 * kLanes)));

// Storage types. fp32 is plain float.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

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

// ---- bf16: the upper half of an fp32 value

EAGLE3_QUAROT_INLINE Bits ZeroExtend(HalfBits half) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  return BitCast<Bits>(_mm512_cvtepu16_epi32(BitCast<__m256i>(half)));
#elif defined(__AVX2__)
  return BitCast<Bits>(_mm256_cvtepu16_epi32(BitCast<__m128i>(half)));
#else
  return __builtin_convertvector(half, Bits);
#endif
}

EAGLE3_QUAROT_INLINE Vector Widen(BFloat16, HalfBits half) {
  return BitCast<Vector>(ZeroExtend(half) << 16);
}

// To nearest, ties to even. The carry cannot turn a NaN into a number here: NaNs that come out of
// bf16 rows or of arithmetic have an empty lower half. (AVX512_BF16 has one instruction for it, which
// takes subnormals for zero.)
EAGLE3_QUAROT_INLINE HalfBits Narrow(BFloat16, Vector value) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  const __m512i bits = BitCast<__m512i>(value);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i even = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_mask_add_epi32(even, odd, bits, _mm512_set1_epi32(0x8000));
  const __m512i upper_halves = {0x0007000500030001, 0x000f000d000b0009, 0x0017001500130011,
                                0x001f001d001b0019};
  return BitCast<HalfBits>(
      _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper_halves, rounded)));
#else
  const Bits bits = BitCast<Bits>(value);
  return __builtin_convertvector((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, HalfBits);
#endif
}

// ---- fp16

#if defined(__AVX512F__) && defined(__AVX512BW__)

EAGLE3_QUAROT_INLINE Vector Widen(Float16, HalfBits half) {
  return BitCast<Vector>(_mm512_cvtph_ps(BitCast<__m256i>(half)));
}

EAGLE3_QUAROT_INLINE HalfBits Narrow(Float16, Vector value) {
  return BitCast<HalfBits>(_mm512_cvtps_ph(BitCast<__m512>(value), _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__AVX2__) && defined(__F16C__)

EAGLE3_QUAROT_INLINE Vector Widen(Float16, HalfBits half) {
  return BitCast<Vector>(_mm256_cvtph_ps(BitCast<__m128i>(half)));
}

EAGLE3_QUAROT_INLINE HalfBits Narrow(Float16, Vector value) {
  return BitCast<HalfBits>(_mm256_cvtps_ph(BitCast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__aarch64__)

EAGLE3_QUAROT_INLINE Vector Widen(Float16, HalfBits half) {
  return BitCast<Vector>(vcvt_f32_f16(BitCast<float16x4_t>(half)));
}

EAGLE3_QUAROT_INLINE HalfBits Narrow(Float16, Vector value) {
  return BitCast<HalfBits>(vcvt_f16_f32(BitCast<float32x4_t>(value)));
}

#else

EAGLE3_QUAROT_INLINE float WidenOne(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return BitCast<float>(sign | 0x7f800000u | (magnitude << 13));
  // The product moves the exponent from fp16's bias to fp32's and normalises subnormals.
  const float scaled = BitCast<float>(magnitude << 13) * 0x1p112f;
  return BitCast<float>(sign | BitCast<uint32_t>(scaled));
}

EAGLE3_QUAROT_INLINE uint16_t NarrowOne(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and beyond
  if (magnitude < 0x38800000u) {
    // Subnormal in fp16: adding 0.5 rounds at 2^-24, the distance of fp16's subnormals.
    const uint32_t rounded = BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5f);
    return static_cast<uint16_t>(sign | (rounded - 0x3f000000u));
  }
  const uint32_t rebased = magnitude - (112u << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13));
}

EAGLE3_QUAROT_INLINE Vector Widen(Float16, HalfBits half) {
  Vector value;
  for (int i = 0; i < kLanes; ++i) value[i] = WidenOne(half[i]);
  return value;
}

EAGLE3_QUAROT_INLINE HalfBits Narrow(Float16, Vector value) {
  HalfBits half;
  for (int i = 0; i < kLanes; ++i) half[i] = NarrowOne(value[i]);
  return half;
}

#endif

// ---- memory

EAGLE3_QUAROT_INLINE Vector Load(const float* memory) { return LoadUnaligned<Vector>(memory); }

template <class Half>
EAGLE3_QUAROT_INLINE Vector Load(const Half* memory) {
  return Widen(Half{}, LoadUnaligned<HalfBits>(memory));
}

EAGLE3_QUAROT_INLINE void Store(float* memory, Vector value) {
  __builtin_memcpy(memory, &value, sizeof value);
}

template <class Half>
EAGLE3_QUAROT_INLINE void Store(Half* memory, Vector value) {
  const HalfBits half = Narrow(Half{}, value);
  __builtin_memcpy(memory, &half, sizeof half);
}

// ---- memory that is written past the caches

// A T of an output so large that no cache keeps it until somebody reads it. Whole lines of it are
// written without reading what they replace, which is half of the traffic of an output; single vectors
// as ever. A line has to be written by one instruction: parts of it would go to memory by themselves.
template <class T>
struct Streamed {
  T value;
};

template <class T>
constexpr bool kIsStreamed = false;
template <class T>
constexpr bool kIsStreamed<Streamed<T>> = true;

// Two vectors of 16-bit elements are a line.
#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr bool kCanStream = true;
#else
constexpr bool kCanStream = false;
#endif

constexpr int64_t kLine = 64;

template <class T>
EAGLE3_QUAROT_INLINE bool IsWholeLines(const T* memory, int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  return (reinterpret_cast<uintptr_t>(memory) | static_cast<uintptr_t>(bytes)) % kLine == 0;
}

template <class Half>
EAGLE3_QUAROT_INLINE HalfBits Narrow(Streamed<Half>, Vector value) {
  return Narrow(Half{}, value);
}

template <class T>
EAGLE3_QUAROT_INLINE void Store(Streamed<T>* memory, Vector value) {
  Store(&memory->value, value);
}

// The line at `memory` from its two halves.
template <class Half>
EAGLE3_QUAROT_INLINE void StoreLine(Streamed<Half>* memory, HalfBits low, HalfBits high) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  const __m512i line = _mm512_inserti64x4(_mm512_castsi256_si512(BitCast<__m256i>(low)),
                                          BitCast<__m256i>(high), 1);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(memory), line);
#else
  __builtin_memcpy(memory, &low, sizeof low);
  __builtin_memcpy(memory + kLanes, &high, sizeof high);
#endif
}

// Makes streamed lines visible to other threads.
EAGLE3_QUAROT_INLINE void FinishStreaming() {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  _mm_sfence();
#endif
}

// The first `count` < kLanes elements; the other lanes are zero.
template <class T>
EAGLE3_QUAROT_INLINE Vector LoadPart(const T* memory, int64_t count) {
  T padded[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = memory[i];
  return Load(padded);
}

template <class T>
EAGLE3_QUAROT_INLINE void StorePart(T* memory, Vector value, int64_t count) {
  T padded[kLanes];
  Store(padded, value);
  for (int64_t i = 0; i < count; ++i) memory[i] = padded[i];
}

// `value` as it is after a trip through T.
EAGLE3_QUAROT_INLINE Vector RoundTo(float, Vector value) { return value; }

template <class Half>
EAGLE3_QUAROT_INLINE Vector RoundTo(Half, Vector value) {
  return Widen(Half{}, Narrow(Half{}, value));
}

// ---- lanes

// The partner of every lane in a butterfly of distance kDistance: lane i ^ kDistance.
template <int kDistance, int... kLane>
EAGLE3_QUAROT_INLINE Vector SwapLanes(Vector value, std::integer_sequence<int, kLane...>) {
#if defined(__clang__)
  return __builtin_shufflevector(value, value, (kLane ^ kDistance)...);
#else
  return __builtin_shuffle(value, Lanes{(kLane ^ kDistance)...});
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
