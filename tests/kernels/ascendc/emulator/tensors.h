// SPDX-License-Identifier: Apache-2.0
//
// LocalTensor and GlobalTensor: typed views with bounds. Sources: asc-devkit
// docs/zh/api/SIMD-API/基础API/数据结构/{LocalTensor,GlobalTensor}/*.md
#ifndef EMULATOR_TENSORS_H_
#define EMULATOR_TENSORS_H_

#include <cstdint>
#include <string>

#include "memory.h"

#define __aicore__
#define __global__
#define __gm__
#define GM_ADDR uint8_t*
#define KERNEL_TASK_TYPE_DEFAULT(type)

namespace emu {
struct QueueBuffer;
}

namespace AscendC {

enum class TPosition : uint8_t { VECIN, VECOUT, VECCALC };

template <typename T>
class LocalTensor {
 public:
  LocalTensor() = default;
  LocalTensor(uint8_t* data, size_t bytes, emu::QueueBuffer* owner) : data_(data), bytes_(bytes), owner_(owner) {}

  LocalTensor operator[](uint32_t offset) const {
    const size_t skip = static_cast<size_t>(offset) * sizeof(T);
    EMULATOR_REQUIRE(skip <= bytes_, "bounds", "LocalTensor offset " + std::to_string(offset) + " beyond its end");
    return LocalTensor(data_ + skip, bytes_ - skip, owner_);
  }
  uint64_t GetPhyAddr() const { return reinterpret_cast<uint64_t>(data_); }
  uint32_t GetSize() const { return static_cast<uint32_t>(bytes_ / sizeof(T)); }

  /// Scalar read of the Unified Buffer: needs the V_S event after a vector write.
  T GetValue(uint32_t index) const {
    const uint8_t* address = data_ + static_cast<size_t>(index) * sizeof(T);
    EMULATOR_REQUIRE((index + 1) * sizeof(T) <= bytes_, "bounds", "LocalTensor::GetValue beyond the tensor");
    const size_t offset = emu::UnifiedOffset(address);
    const emu::Block& block = emu::ThisCore().blocks[offset / emu::kBlockBytes];
    emu::CheckRead(emu::kS, offset / emu::kBlockBytes, "GetValue");
    const uint32_t mask = emu::ByteMask(offset % emu::kBlockBytes, sizeof(T));
    EMULATOR_REQUIRE((block.initialised & mask) == mask, "uninitialised", "LocalTensor::GetValue of unwritten bytes");
    T value;
    std::memcpy(&value, address, sizeof value);
    return value;
  }

  // Emulator side.
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  emu::QueueBuffer* owner() const { return owner_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  emu::QueueBuffer* owner_ = nullptr;
};

template <typename T>
class GlobalTensor {
 public:
  void SetGlobalBuffer(__gm__ T* buffer, uint64_t size) {
    EMULATOR_REQUIRE(reinterpret_cast<uint64_t>(buffer) % sizeof(T) == 0, "alignment",
                 "a global buffer is not aligned to its element");
    if (size != 0) emu::FindGlobal(buffer, size * sizeof(T), "SetGlobalBuffer");
    data_ = buffer;
    size_ = size;
  }
  GlobalTensor operator[](uint64_t offset) const {
    EMULATOR_REQUIRE(offset <= size_, "global bounds", "GlobalTensor offset beyond its end");
    GlobalTensor view;
    view.data_ = data_ + offset;
    view.size_ = size_ - offset;
    return view;
  }
  T GetValue(uint64_t index) const {
    EMULATOR_REQUIRE(index < size_, "global bounds", "GlobalTensor::GetValue beyond the tensor");
    emu::GlobalRead(data_ + index, sizeof(T), "GetValue");
    return data_[index];
  }

  T* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace AscendC

#endif  // EMULATOR_TENSORS_H_
