// SPDX-License-Identifier: Apache-2.0
//
// The device under the torch binding, emulated: launches run at once, on the CPU's memory.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core.h"
#include "memory.h"
#include "row_launch.h"

extern "C" {
void eagle3_quarot_rows_bf16(eagle3_quarot::RowArgs args);
void eagle3_quarot_rows_f16(eagle3_quarot::RowArgs args);
void eagle3_quarot_rows_f32(eagle3_quarot::RowArgs args);

/// Launches so far: tells a test whether the kernel ran or a fallback did.
uint64_t eagle3_quarot_emulated_launches = 0;
}

namespace eagle3_quarot {

namespace {

struct Range {
  uint64_t begin;
  uint64_t end;
  bool writable;
};

/// Registers what the arguments allow the kernel to touch; ranges of one tensor become one.
void RegisterRanges(const RowArgs& args, uint64_t element_bytes) {
  std::vector<Range> ranges;
  const auto add = [&](uint64_t begin, uint64_t bytes, bool writable) {
    if (begin != 0 && bytes != 0) ranges.push_back({begin, begin + bytes, writable});
  };
  const uint64_t hidden = args.plan.hidden;
  const uint64_t rows = args.ids != 0 ? static_cast<uint64_t>(args.vocab_end - args.vocab_start) : args.tokens;
  for (uint32_t a = 0; a < args.slices; ++a) {
    if (rows != 0) add(args.sources[a], ((rows - 1) * args.strides[a] + hidden) * element_bytes, false);
    add(args.channels[a], hidden * (args.channel_is_float != 0 ? 4 : element_bytes), false);
  }
  add(args.out, static_cast<uint64_t>(args.tokens) * args.slices * hidden * element_bytes, true);
  add(args.scale, uint64_t{args.plan.block} * 4, false);
  add(args.factor_codes, uint64_t{args.plan.factor} * args.plan.factor / 4, false);
  add(args.ids, uint64_t{args.tokens} * args.id_bytes, false);
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
      merged.back().writable = merged.back().writable || range.writable;
    } else {
      merged.push_back(range);
    }
  }
  emu::GlobalBuffers().clear();
  for (const Range& range : merged) {
    emu::RegisterGlobal("tensor", reinterpret_cast<void*>(range.begin), range.end - range.begin, range.writable);
  }
}

}  // namespace

uint32_t VectorCores() { return 48; }

void EnqueueRows(const char*, ElementType type, uint32_t cores, const RowArgs& args) {
  auto* kernel = type == ElementType::kBFloat16  ? eagle3_quarot_rows_bf16
                 : type == ElementType::kFloat16 ? eagle3_quarot_rows_f16
                                                 : eagle3_quarot_rows_f32;
  RegisterRanges(args, type == ElementType::kFloat32 ? 4 : 2);
  std::vector<uint32_t> order(cores);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<uint32_t>(eagle3_quarot_emulated_launches++)));
  for (const uint32_t core : order) {
    emu::StartCore(core, cores, 0xFB);
    kernel(args);
  }
}

}  // namespace eagle3_quarot
