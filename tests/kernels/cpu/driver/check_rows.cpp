// SPDX-License-Identifier: Apache-2.0
//
// The torch-free kernels under AddressSanitizer and UndefinedBehaviorSanitizer: every instruction set
// that this processor has, against the formula in double, in buffers of exactly the right size.
// Prints one line per instruction set; the exit status is the number of failed checks.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "row_transform.h"

using namespace eagle3_quarot::cpu;

namespace {

int failures = 0;

void Check(bool holds, const std::string& what) {
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}

struct AlignedFloats {
  explicit AlignedFloats(int64_t count)
      : data(static_cast<float*>(std::aligned_alloc(
            4 * kMaxLanes, (count * 4 + 4 * kMaxLanes - 1) / (4 * kMaxLanes) * (4 * kMaxLanes)))) {
    for (int64_t i = 0; i < count; ++i) data[i] = std::numeric_limits<float>::quiet_NaN();
  }
  ~AlignedFloats() { std::free(data); }
  float* data;
};

float FromHalf(uint16_t half) {
  const int exponent = (half >> 10) & 31, mantissa = half & 1023;
  float value = exponent == 31 ? (mantissa != 0 ? NAN : INFINITY)
                : exponent == 0
                    ? std::ldexp(static_cast<float>(mantissa), -24)
                    : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (half & 0x8000) != 0 ? -value : value;
}

float FromBFloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

float Value(Dtype dtype, const std::vector<char>& bytes, int64_t i) {
  uint16_t half;
  if (dtype == Dtype::kFloat32) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  std::memcpy(&half, bytes.data() + 2 * i, 2);
  return dtype == Dtype::kFloat16 ? FromHalf(half) : FromBFloat16(half);
}

// Distance of neighbouring values of the dtype, relative to 1.
double Step(Dtype dtype) {
  return dtype == Dtype::kFloat32 ? 0x1p-23 : dtype == Dtype::kFloat16 ? 0x1p-10 : 0x1p-7;
}

// The formula of row_transform.h, in double.
std::vector<double> Formula(std::vector<double> x, int64_t order, int64_t power,
                            const std::vector<float>& signs, const std::vector<float>& factor,
                            Direction direction) {
  const bool rotate = direction == Direction::kRotate;
  const int64_t block = order * power;
  for (size_t start = 0; start < x.size(); start += block) {
    double* row = x.data() + start;
    if (rotate) {
      for (int64_t i = 0; i < block; ++i) row[i] *= signs[i];
    }
    for (int64_t distance = 1; distance < power; distance *= 2) {
      for (int64_t i = 0; i < block; ++i) {
        if ((i & distance) != 0) continue;
        const double a = row[i], b = row[i + distance];
        row[i] = a + b;
        row[i + distance] = a - b;
      }
    }
    std::vector<double> y(block, 0.0);
    for (int64_t i = 0; i < order; ++i) {
      for (int64_t j = 0; j < order; ++j) {
        const double entry = rotate ? factor[j * order + i] : factor[i * order + j];
        for (int64_t c = 0; c < power; ++c) y[i * power + c] += entry * row[j * power + c];
      }
    }
    for (int64_t i = 0; i < block; ++i) row[i] = rotate ? y[i] : y[i] * signs[i];
  }
  return x;
}

enum class FactorKind { kSigns, kSplitSigns, kReal };

std::vector<float> MakeFactorMatrix(int64_t order, FactorKind kind, std::mt19937& random) {
  std::vector<float> factor(order * order);
  std::normal_distribution<float> normal;
  for (float& entry : factor) {
    entry = kind == FactorKind::kReal ? normal(random) : (random() & 1) != 0 ? 1.0f : -1.0f;
  }
  if (kind == FactorKind::kSplitSigns) {
    const int64_t half = order / 2;
    for (int64_t i = 0; i < half; ++i) {
      for (int64_t j = 0; j < half; ++j) {
        const float entry = factor[i * order + j];
        factor[i * order + j + half] = factor[(i + half) * order + j] = entry;
        factor[(i + half) * order + j + half] = -entry;
      }
    }
  }
  if (order == 1 && kind != FactorKind::kReal) factor[0] = 1.0f;
  return factor;
}

void CheckStructure(const Kernels& kernels, const Kernels& generic, int64_t order, int64_t power,
                    FactorKind kind, int64_t blocks) {
  std::mt19937 random(order * 7919 + power);
  std::normal_distribution<float> normal;
  const int64_t block = order * power, size = block * blocks;
  const std::vector<float> factor = MakeFactorMatrix(order, kind, random);
  std::vector<float> signs(block), multiplier(size);
  for (float& sign : signs) sign = (random() & 1) != 0 ? 0.5f : -0.5f;
  for (float& value : multiplier) value = 0.5f + std::fabs(normal(random));

  for (const Direction direction : {Direction::kUnrotate, Direction::kRotate}) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat16}) {
      for (const bool multiplied : {false, true}) {
        Transform transform =
            MakeTransform(order, power, signs.data(), factor.data(), direction);
        if (multiplied) {
          transform.multiplier = multiplier.data();
          transform.multiplier_size = size;
        }
        std::vector<char> source(size * ElementSize(dtype)), target(source.size());
        for (int64_t i = 0; i < size; ++i) {
          // Cut fp32 at 8 bits: exact in every dtype, so source and formula start equal.
          const float value = FromBFloat16(static_cast<uint16_t>(0x3f00 + random() % 0x100)) *
                              ((random() & 1) != 0 ? 1.0f : -1.0f);
          uint32_t bits;
          std::memcpy(&bits, &value, 4);
          uint16_t half = static_cast<uint16_t>(bits >> 16);
          if (dtype == Dtype::kFloat16) {
            half = static_cast<uint16_t>((half & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13));
          }
          if (dtype == Dtype::kFloat32) {
            std::memcpy(source.data() + 4 * i, &value, 4);
          } else {
            std::memcpy(source.data() + 2 * i, &half, 2);
          }
        }
        std::vector<double> x(size);
        for (int64_t i = 0; i < size; ++i) {
          x[i] = Value(dtype, source, i);
          if (multiplied) x[i] *= multiplier[i];
        }
        AlignedFloats scratch(ScratchFloats(transform));
        kernels.transform_row(transform, 0, size, dtype, source.data(), nullptr, dtype,
                              target.data(), false, scratch.data);
        const std::vector<double> exact = Formula(x, order, power, signs, factor, direction);
        double norm = 0;
        for (const double value : exact) norm += value * value;
        const double scale = std::sqrt(norm / size);
        const std::string label = std::string(kernels.name) + " " + std::to_string(order) + "x" +
                                  std::to_string(power) + " blocks " + std::to_string(blocks);
        for (int64_t i = 0; i < size; ++i) {
          const double error = std::fabs(Value(dtype, target, i) - exact[i]);
          // Half a step of the dtype, and fp32 sums on the scale of the row.
          if (error > 0.51 * Step(dtype) * std::fabs(exact[i]) + 4e-6 * scale) {
            Check(false, label + " channel " + std::to_string(i));
            break;
          }
        }
        // In place, and bit for bit the same in every instruction set: the sums have one order.
        std::vector<char> in_place = source;
        kernels.transform_row(transform, 0, size, dtype, in_place.data(), nullptr, dtype,
                              in_place.data(), false, scratch.data);
        Check(in_place == target, label + " in place");
        // Past the caches, whole lines or not: the same bits, and nothing beside them.
        AlignedFloats streamed(2 + size);
        for (const int64_t offset : {0, 8}) {
          char* place = reinterpret_cast<char*>(streamed.data) + offset;
          kernels.transform_row(transform, 0, size, dtype, source.data(), nullptr, dtype, place, true,
                                scratch.data);
          kernels.finish_streaming();
          Check(std::memcmp(place, target.data(), target.size()) == 0, label + " streamed");
        }
        if (kind != FactorKind::kReal) {
          std::vector<char> other(target.size());
          generic.transform_row(transform, 0, size, dtype, source.data(), nullptr, dtype,
                                other.data(), false, scratch.data);
          Check(other == target, label + " against generic");
        }
      }
    }
  }
}

// Every 16-bit pattern to fp32 and back, and fp32 values around every rounding boundary.
void CheckConversions(const Kernels& kernels, Dtype dtype) {
  const float one = 1.0f;
  const Transform identity = MakeTransform(1, 1, nullptr, &one, Direction::kUnrotate);
  AlignedFloats scratch(ScratchFloats(identity));
  const auto convert = [&](Dtype from, const void* source, Dtype to, void* target) {
    kernels.transform_row(identity, 0, 1, from, source, nullptr, to, target, false, scratch.data);
  };
  const auto widen = [dtype](uint16_t half) {
    return dtype == Dtype::kFloat16 ? FromHalf(half) : FromBFloat16(half);
  };
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const uint16_t half = static_cast<uint16_t>(pattern);
    float wide;
    convert(dtype, &half, Dtype::kFloat32, &wide);
    const float expected = widen(half);
    if (std::isnan(expected)) {
      uint16_t back;
      convert(dtype, &half, dtype, &back);
      Check(std::isnan(wide) && std::isnan(widen(back)), "a NaN gets lost");
      continue;
    }
    Check(wide == expected && std::signbit(wide) == std::signbit(expected), "16 bits to fp32");
    const float next = widen(static_cast<uint16_t>(half + 1));
    if (std::isinf(expected) || !std::isfinite(next)) continue;
    // Exactly half-way goes to the even neighbour, just beside it to the nearer one.
    const float middle = static_cast<float>((static_cast<double>(expected) + next) / 2);
    const uint16_t even = static_cast<uint16_t>((half & 1) != 0 ? half + 1 : half);
    const float nearer[3] = {std::nextafter(middle, expected), middle,
                             std::nextafter(middle, next)};
    const uint16_t results[3] = {half, even, static_cast<uint16_t>(half + 1)};
    for (int i = 0; i < 3; ++i) {
      uint16_t narrow;
      convert(Dtype::kFloat32, &nearer[i], dtype, &narrow);
      Check(narrow == results[i], std::string(kernels.name) + ": fp32 to 16 bits at pattern " +
                                      std::to_string(pattern));
    }
  }
}

// The same where vectors go in pairs: the transform of a one-hot row has one magnitude throughout.
// Every sign and exponent, with fractions at both ends and in the middle.
void CheckConversionsOfPairs(const Kernels& kernels, Dtype dtype) {
  constexpr int64_t kSize = 512;
  const float one = 1.0f;
  const std::vector<float> ones(kSize, 1.0f);
  const Transform transform = MakeTransform(1, kSize, ones.data(), &one, Direction::kUnrotate);
  AlignedFloats scratch(ScratchFloats(transform));
  const auto widen = [dtype](uint16_t half) {
    return dtype == Dtype::kFloat16 ? FromHalf(half) : FromBFloat16(half);
  };
  const auto equal = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const uint32_t fraction = dtype == Dtype::kFloat16 ? 0x400 : 0x80;
  for (uint32_t exponent = 0; exponent < 0x10000; exponent += fraction) {
    for (const uint32_t low : {0u, 1u, 2u, fraction / 2, fraction - 2, fraction - 1}) {
      const uint16_t half = static_cast<uint16_t>(exponent + low);
      const float expected = widen(half);
      const int64_t channel = (exponent / fraction * 37 + low) % kSize;
      std::vector<uint16_t> halves(kSize), narrow(kSize);
      std::vector<float> wide(kSize);
      halves[channel] = half;
      kernels.transform_row(transform, 0, kSize, dtype, halves.data(), nullptr, Dtype::kFloat32,
                            wide.data(), false, scratch.data);
      bool all_equal = true;
      for (const float value : wide) all_equal &= equal(std::fabs(value), std::fabs(expected));
      Check(all_equal, std::string(kernels.name) + ": pairs to fp32 at " + std::to_string(half));

      const float next = widen(static_cast<uint16_t>(half + 1));
      if (!std::isfinite(expected) || !std::isfinite(next)) continue;
      const float middle = static_cast<float>((static_cast<double>(expected) + next) / 2);
      const float even = (half & 1) != 0 ? next : expected;
      const float nearer[3] = {std::nextafter(middle, expected), middle,
                               std::nextafter(middle, next)};
      const float results[3] = {expected, even, next};
      for (int i = 0; i < 3; ++i) {
        std::vector<float> row(kSize);
        row[channel] = nearer[i];
        kernels.transform_row(transform, 0, kSize, Dtype::kFloat32, row.data(), nullptr, dtype,
                              narrow.data(), false, scratch.data);
        all_equal = true;
        for (const uint16_t value : narrow) {
          all_equal &= std::fabs(widen(value)) == std::fabs(results[i]);
        }
        Check(all_equal, std::string(kernels.name) + ": pairs to 16 bits at " + std::to_string(half));
      }
    }
  }
}

void CheckNorm(const Kernels& kernels, int64_t size) {
  std::mt19937 random(size);
  std::normal_distribution<float> normal;
  std::vector<float> x(size), gamma(size), target(size);
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    x[i] = normal(random);
    gamma[i] = normal(random);
    sum += static_cast<double>(x[i]) * x[i];
  }
  kernels.rms_norm(x.data(), size, Dtype::kFloat32, gamma.data(), 1e-5f, Dtype::kFloat32,
                   target.data());
  const double scale = 1 / std::sqrt(sum / size + 1e-5);
  for (int64_t i = 0; i < size; ++i) {
    const double expected = x[i] * scale * gamma[i];
    Check(std::fabs(target[i] - expected) <= 1e-6 * std::fabs(expected) + 1e-12,
          std::string(kernels.name) + " norm of " + std::to_string(size));
  }
}

}  // namespace

int main() {
  const Kernels& generic = SelectKernels("generic");
  for (const char* name : {"generic", "avx2", "avx512"}) {
    const Kernels& kernels = SelectKernels(name);
    if (std::strcmp(kernels.name, name) != 0) continue;  // not on this processor
    for (const int64_t order : {1, 2, 4, 12, 20, 28, 36, 160}) {
      for (const int64_t power : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
        if (order * power > 8192) continue;
        CheckStructure(kernels, generic, order, power, FactorKind::kSigns, 1 + power % 3);
      }
    }
    for (const int64_t power : {2, 16, 64}) {
      CheckStructure(kernels, generic, 160, power, FactorKind::kSplitSigns, 2);
      CheckStructure(kernels, generic, 24, power, FactorKind::kSplitSigns, 3);
      CheckStructure(kernels, generic, 18, power, FactorKind::kSplitSigns, 2);
      CheckStructure(kernels, generic, 7, power, FactorKind::kSigns, 2);
      CheckStructure(kernels, generic, 7, power, FactorKind::kReal, 2);
      CheckStructure(kernels, generic, 1, power, FactorKind::kReal, 2);
    }
    CheckConversions(kernels, Dtype::kBFloat16);
    CheckConversions(kernels, Dtype::kFloat16);
    CheckConversionsOfPairs(kernels, Dtype::kBFloat16);
    CheckConversionsOfPairs(kernels, Dtype::kFloat16);
    for (const int64_t size : {1, 15, 16, 17, 64, 65, 4096, 4100}) CheckNorm(kernels, size);
    std::printf("checked %s\n", name);
  }
  return failures;
}
