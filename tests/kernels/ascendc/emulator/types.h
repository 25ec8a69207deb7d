// SPDX-License-Identifier: Apache-2.0
//
// The 16-bit float types of the device, as storage with explicit conversions: no arithmetic, so
// that arithmetic on them is a compile error here as it is (for bf16) on the device.
#ifndef EMULATOR_TYPES_H_
#define EMULATOR_TYPES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace emu {

inline uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint16_t RoundToBFloat16(float value) {
  const uint32_t bits = Bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace emu

struct bfloat16_t {
  uint16_t bits;
};

struct half {
  uint16_t bits;
};

namespace emu {

inline float Widen(bfloat16_t value) { return FromBits(static_cast<uint32_t>(value.bits) << 16); }
inline float Widen(half value) {
  _Float16 wide;
  std::memcpy(&wide, &value.bits, sizeof wide);
  return static_cast<float>(wide);
}

inline void RoundNearest(float value, bfloat16_t& result) { result.bits = RoundToBFloat16(value); }
inline void RoundNearest(float value, half& result) {
  // Overflow gives infinity: saturation is off by default on the device.
  const auto narrow = static_cast<_Float16>(value);
  std::memcpy(&result.bits, &narrow, sizeof narrow);
}

template <typename T>
constexpr bool kIsArithmetic = std::is_same_v<T, float> || std::is_same_v<T, half> ||
                               std::is_same_v<T, int16_t> || std::is_same_v<T, int32_t>;

}  // namespace emu

#endif  // EMULATOR_TYPES_H_
