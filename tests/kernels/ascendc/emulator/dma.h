// SPDX-License-Identifier: Apache-2.0
//
// DataCopy between global memory and the Unified Buffer (pipes MTE2 and MTE3).
//
// The device silently rounds a length down to 32 bytes; here that is an error. Source: asc-devkit
// docs/zh/api/SIMD-API/基础API/Memory矢量计算/数据搬运/DataCopy（GM与UB连续数据搬运）.md
#ifndef EMULATOR_DMA_H_
#define EMULATOR_DMA_H_

#include <cstring>

#include "statistics.h"
#include "tensors.h"

namespace AscendC {

namespace detail {
inline void CheckLength(size_t bytes, size_t local, size_t global) {
  EMULATOR_REQUIRE(bytes % emu::kBlockBytes == 0, "DataCopy",
               std::to_string(bytes) + " bytes are not a multiple of 32 (the device would truncate)");
  EMULATOR_REQUIRE(bytes <= local, "bounds", "DataCopy longer than the LocalTensor");
  EMULATOR_REQUIRE(bytes <= global, "global bounds", "DataCopy longer than the GlobalTensor");
}
}  // namespace detail

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (bytes == 0) return;
  detail::CheckLength(bytes, dst.bytes(), src.size() * sizeof(T));
  emu::GlobalRead(src.data(), bytes, "DataCopy");
  emu::Access access("DataCopy", emu::kMte2);
  for (size_t at = 0; at < bytes; at += emu::kBlockBytes) {
    access.Write(access.BlockAt(dst.data() + at), emu::kBlockBytes, 0, 0);
  }
  std::memcpy(dst.data(), src.data(), bytes);
  emu::CountInstruction("DataCopyIn", bytes / emu::kBlockBytes);
  emu::Stats().bytes_in += bytes;
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (bytes == 0) return;
  detail::CheckLength(bytes, src.bytes(), dst.size() * sizeof(T));
  emu::Access access("DataCopy", emu::kMte3);
  for (size_t at = 0; at < bytes; at += emu::kBlockBytes) {
    access.Read(access.BlockAt(src.data() + at), emu::kBlockBytes, 0, 0);
  }
  emu::GlobalWrite(dst.data(), bytes, "DataCopy");
  std::memcpy(dst.data(), src.data(), bytes);
  emu::CountInstruction("DataCopyOut", bytes / emu::kBlockBytes);
  emu::Stats().bytes_out += bytes;
}

}  // namespace AscendC

#endif  // EMULATOR_DMA_H_
