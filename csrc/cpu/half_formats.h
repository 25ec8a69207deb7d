// SPDX-License-Identifier: Apache-2.0
//
// bf16 and fp16 to fp32 and back, a vector at a time, rounded to nearest with ties to even.
#ifndef EAGLE3_QUAROT_CPU_HALF_FORMATS_H_
#define EAGLE3_QUAROT_CPU_HALF_FORMATS_H_

#include "vector.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

typedef uint16_t HalfBits __attribute__((vector_size(2 * kLanes)));

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

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

// To nearest, ties to even. The carry cannot turn a NaN into a number: NaNs that come out of bf16 rows
// or of arithmetic have an empty lower half, and others are made so beforehand (WithoutPayloads).
// (AVX512_BF16 has one instruction for it, which takes subnormals for zero.)
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

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_HALF_FORMATS_H_
