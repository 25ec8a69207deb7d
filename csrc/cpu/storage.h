// SPDX-License-Identifier: Apache-2.0
//
// Rows in memory, in fp32, bf16 or fp16, as vectors of floats.
#ifndef EAGLE3_QUAROT_CPU_STORAGE_H_
#define EAGLE3_QUAROT_CPU_STORAGE_H_

#include "half_formats.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

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

// ---- two neighbouring vectors, which is a line of 16-bit elements with 512-bit registers

// Vector kPart (0 or 1) of the two at `memory`.
template <int kPart, class T>
EAGLE3_QUAROT_INLINE Vector LoadOfPair(const T* memory) {
  return Load(memory + kPart * kLanes);
}

template <class T>
EAGLE3_QUAROT_INLINE void StorePair(T* memory, Vector low, Vector high) {
  Store(memory, low);
  Store(memory + kLanes, high);
}

#if defined(__AVX512F__) && defined(__AVX512BW__)

typedef uint16_t PairBits __attribute__((vector_size(4 * kLanes)));

template <int kPart, int... kWord>
EAGLE3_QUAROT_INLINE Vector ExpandWords(__m512i line, std::integer_sequence<int, kWord...>) {
  const PairBits source = {static_cast<uint16_t>(kPart * kLanes + kWord / 2)...};
  return BitCast<Vector>(
      _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, BitCast<__m512i>(source), line));
}

// One permutation puts the elements of a half of the line into the upper halves of floats.
template <int kPart>
EAGLE3_QUAROT_INLINE Vector LoadOfPair(const BFloat16* memory) {
  return ExpandWords<kPart>(_mm512_loadu_si512(memory), std::make_integer_sequence<int, 32>());
}

// Words 2 i + kOdd of `low` and `high`.
template <int kOdd, int... kWord>
EAGLE3_QUAROT_INLINE __m512i PackWords(Vector low, Vector high,
                                       std::integer_sequence<int, kWord...>) {
  const PairBits source = {static_cast<uint16_t>(2 * kWord + kOdd)...};
  return _mm512_permutex2var_epi16(BitCast<__m512i>(low), BitCast<__m512i>(source),
                                   BitCast<__m512i>(high));
}

// As Narrow, 32 elements at once: up where the lower half is above the middle, or in the middle below
// an odd upper half. Putting the last bit of the upper half into the lower one makes that one case.
EAGLE3_QUAROT_INLINE PairBits NarrowPair(BFloat16, Vector low, Vector high) {
  constexpr auto words = std::make_integer_sequence<int, 32>();
  constexpr int kFirstOrSecondAndThird = 0xf8;
  const __m512i upper = PackWords<1>(low, high, words);
  const __m512i one = _mm512_set1_epi16(1);
  const __m512i lower =
      _mm512_ternarylogic_epi32(PackWords<0>(low, high, words), upper, one, kFirstOrSecondAndThird);
  const __mmask32 up = _mm512_cmpgt_epu16_mask(lower, _mm512_set1_epi16(-0x8000));
  return BitCast<PairBits>(_mm512_mask_add_epi16(upper, up, upper, one));
}

EAGLE3_QUAROT_INLINE PairBits NarrowPair(Float16, Vector low, Vector high) {
  return BitCast<PairBits>(
      _mm512_inserti64x4(_mm512_castsi256_si512(BitCast<__m256i>(Narrow(Float16{}, low))),
                         BitCast<__m256i>(Narrow(Float16{}, high)), 1));
}

EAGLE3_QUAROT_INLINE void StorePair(BFloat16* memory, Vector low, Vector high) {
  const PairBits pair = NarrowPair(BFloat16{}, low, high);
  __builtin_memcpy(memory, &pair, sizeof pair);
}

#endif

// ---- memory that is written past the caches

// A T of an output so large that no cache keeps it until somebody reads it. Whole lines of it are
// written without reading what they replace, which is half of the traffic of an output; single vectors
// as ever. A line has to be written by one instruction: parts of it would go to memory by themselves.
template <class T>
struct Streamed {
  T value;
};

#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr bool kCanStream = true;
#else
constexpr bool kCanStream = false;
#endif

constexpr int kLine = 64;

template <class T>
EAGLE3_QUAROT_INLINE bool IsWholeLines(const T* memory, int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  return (reinterpret_cast<uintptr_t>(memory) | static_cast<uintptr_t>(bytes)) % kLine == 0;
}

template <class T>
EAGLE3_QUAROT_INLINE void Store(Streamed<T>* memory, Vector value) {
  Store(&memory->value, value);
}

#if defined(__AVX512F__) && defined(__AVX512BW__)
template <class Half>
EAGLE3_QUAROT_INLINE void StorePair(Streamed<Half>* memory, Vector low, Vector high) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(memory),
                      BitCast<__m512i>(NarrowPair(Half{}, low, high)));
}
#endif

// Makes streamed lines visible to other threads.
EAGLE3_QUAROT_INLINE void FinishStreaming() {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  _mm_sfence();
#endif
}

// ---- parts of a vector, and rounding

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
  return Widen(Half{}, Narrow(Half{}, WithoutPayloads(value)));
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_STORAGE_H_
