// SPDX-License-Identifier: Apache-2.0
//
// Runs the row kernel on emulated cores: run_rows JOB... prints one line of statistics per job.
//
// Cores run one after the other in an order shuffled by the job's seed, each with a Unified Buffer
// filled with a poison byte that depends on the seed. Exit code 70: the emulator stopped the
// kernel; 3: the host side refuses the plan.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core.h"
#include "job.h"
#include "memory.h"
#include "row_tiling.h"
#include "statistics.h"

extern "C" {
void eagle3_quarot_rows_bf16(eagle3_quarot::RowArgs args);
void eagle3_quarot_rows_f16(eagle3_quarot::RowArgs args);
void eagle3_quarot_rows_f32(eagle3_quarot::RowArgs args);
}

namespace {

// Global memory: one heap block per tensor, exactly its size, so that AddressSanitizer guards it.
struct Memory {
  uint8_t* data = nullptr;
  size_t bytes = 0;
};

std::map<std::string, Memory>& Tensors() {
  static std::map<std::string, Memory> tensors;
  return tensors;
}

void Load(const std::string& name, const std::string& path, bool writable) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    std::fprintf(stderr, "driver: cannot read tensor %s\n", path.c_str());
    std::exit(2);
  }
  Memory memory;
  memory.bytes = static_cast<size_t>(file.tellg());
  // The allocator's alignment is at least 16; tensors on the device start at 512-byte boundaries.
  if (posix_memalign(reinterpret_cast<void**>(&memory.data), 64, std::max<size_t>(memory.bytes, 1)) != 0) std::exit(2);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(memory.data), static_cast<std::streamsize>(memory.bytes));
  emu::RegisterGlobal(name, memory.data, memory.bytes, writable);
  Tensors()[name] = memory;
}

uint64_t AddressOf(const std::string& name) {
  return name.empty() ? 0 : reinterpret_cast<uint64_t>(Tensors().at(name).data);
}

void Launch(const Job& job, const eagle3_quarot::RowArgs& args, uint32_t cores) {
  auto* kernel = job.dtype == "bf16"  ? eagle3_quarot_rows_bf16
                 : job.dtype == "f16" ? eagle3_quarot_rows_f16
                                      : eagle3_quarot_rows_f32;
  std::vector<uint32_t> order(cores);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(job.seed));
  const uint8_t poison = job.seed % 2 == 0 ? 0xFB : 0x7F;  // large negative or NaN as fp32
  for (const uint32_t core : order) {
    emu::StartCore(core, cores, poison);
    kernel(args);
  }
}

void Run(const Job& job) {
  for (const auto& [name, path] : job.tensors) Load(name, path, name == job.out);
  const eagle3_quarot::RowShape shape{job.tokens, job.slices, job.ElementBytes(), job.norm, !job.channels.empty()};
  if (const std::string refusal = eagle3_quarot::VectorKernelRefusal(job.plan, shape); !refusal.empty()) {
    std::fprintf(stderr, "REFUSED %s\n", refusal.c_str());
    std::exit(3);
  }
  const eagle3_quarot::RowTiling tiling = eagle3_quarot::TileRows(job.plan, shape, job.cores);

  eagle3_quarot::RowArgs args{};
  args.plan = job.plan;
  args.tokens = job.tokens;
  args.slices = job.slices;
  args.span = tiling.span;
  args.buffers = tiling.buffers;
  args.direction = job.direction;
  args.norm = job.norm;
  args.epsilon = job.epsilon;
  args.channel_is_float = job.channel_is_float;
  args.id_bytes = job.id_bytes;
  for (size_t i = 0; i < job.sources.size(); ++i) {
    args.sources[i] = AddressOf(job.sources[i].tensor) + job.sources[i].offset * job.ElementBytes();
    args.strides[i] = job.sources[i].stride;
  }
  args.out = AddressOf(job.out);
  args.scale = AddressOf(job.scale);
  const uint64_t channel_bytes = job.channel_is_float != 0 ? 4 : job.ElementBytes();
  for (size_t i = 0; i < job.channels.size(); ++i) {
    args.channels[i] = AddressOf(job.channels[i].tensor) + job.channels[i].offset * channel_bytes;
  }
  args.ids = AddressOf(job.ids);
  args.vocab_start = job.vocab_start;
  args.vocab_end = job.vocab_end;
  std::vector<uint8_t> codes;
  if (job.plan.factor > 1) {
    const auto* matrix = reinterpret_cast<const int8_t*>(Tensors().at(job.factor).data);
    codes = eagle3_quarot::EncodeFactor(matrix, job.plan.factor, job.direction == eagle3_quarot::Direction::kRotate);
    emu::RegisterGlobal("factor codes", codes.data(), codes.size(), false);
    args.factor_codes = reinterpret_cast<uint64_t>(codes.data());
  }

  Launch(job, args, tiling.cores);

  const Memory& out = Tensors().at(job.out);
  std::ofstream(job.dump, std::ios::binary)
      .write(reinterpret_cast<const char*>(out.data), static_cast<std::streamsize>(out.bytes));
  std::printf("{\"span\": %u, \"buffers\": %u, \"cores\": %u, \"counts\": ", tiling.span, tiling.buffers, tiling.cores);
  emu::PrintStatistics(stdout);
  std::printf("}\n");
}

void Release() {
  for (auto& [name, memory] : Tensors()) std::free(memory.data);
  Tensors().clear();
  emu::GlobalBuffers().clear();
  emu::Stats() = emu::Statistics{};
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    Run(ReadJob(argv[i]));
    Release();
  }
  return 0;
}
