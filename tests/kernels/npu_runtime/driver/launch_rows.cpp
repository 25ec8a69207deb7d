// SPDX-License-Identifier: Apache-2.0
//
// The kernel launch that CANN's compiler would make of `<<<cores, nullptr, stream>>>`: it runs the
// kernel on emulated cores, at once, over the fake device's memory. Everything above it is the
// product's own code, row_launch_npu.cpp included.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "row_args.h"

extern "C" {
bool fake_cann_holds(const void* begin, size_t bytes);

// The launch that was made last.
std::atomic<uint64_t> launch_count{0};
std::atomic<uint64_t> launch_stream{0};
std::atomic<uint64_t> launch_cores{0};
std::atomic<uint64_t> launch_thread{0};

/// A number for the calling thread, to compare with launch_thread.
uint64_t this_thread() { return std::hash<std::thread::id>{}(std::this_thread::get_id()); }
}

namespace eagle3_quarot {

// launch_emulated.cpp, compiled with its EnqueueRows under this name (see library.py).
void RunEmulatedCores(const char* op, ElementType type, uint32_t cores, const RowArgs& args);

namespace {

void RequireDeviceMemory(const char* what, uint64_t address, uint64_t bytes) {
  if (address == 0 || bytes == 0 || fake_cann_holds(reinterpret_cast<const void*>(address), bytes)) return;
  std::fprintf(stderr, "LAUNCH %s: %llu bytes at %#llx are not device memory\n", what,
               static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address));
  std::_Exit(71);
}

void RequireDeviceMemory(const RowArgs& args, uint64_t element_bytes) {
  const uint64_t hidden = args.plan.hidden;
  const uint64_t rows = args.ids != 0 ? static_cast<uint64_t>(args.vocab_end - args.vocab_start) : args.tokens;
  for (uint32_t a = 0; a < args.slices; ++a) {
    if (rows != 0) RequireDeviceMemory("source", args.sources[a], ((rows - 1) * args.strides[a] + hidden) * element_bytes);
    RequireDeviceMemory("channel", args.channels[a], hidden * (args.channel_is_float != 0 ? 4 : element_bytes));
  }
  RequireDeviceMemory("out", args.out, uint64_t{args.tokens} * args.slices * hidden * element_bytes);
  RequireDeviceMemory("scale", args.scale, uint64_t{args.plan.block} * 4);
  RequireDeviceMemory("factor codes", args.factor_codes, uint64_t{args.plan.factor} * args.plan.factor / 4);
  RequireDeviceMemory("ids", args.ids, uint64_t{args.tokens} * args.id_bytes);
}

}  // namespace

}  // namespace eagle3_quarot

extern "C" void eagle3_quarot_launch_rows(eagle3_quarot::ElementType type, uint32_t cores, void* stream,
                                          const eagle3_quarot::RowArgs& args) {
  static std::mutex one_device;
  const std::lock_guard<std::mutex> lock(one_device);
  eagle3_quarot::RequireDeviceMemory(args, type == eagle3_quarot::ElementType::kFloat32 ? 4 : 2);
  eagle3_quarot::RunEmulatedCores("", type, cores, args);
  launch_stream = reinterpret_cast<uint64_t>(stream);
  launch_cores = cores;
  launch_thread = this_thread();
  ++launch_count;
}
