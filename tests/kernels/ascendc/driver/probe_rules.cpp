// SPDX-License-Identifier: Apache-2.0
//
// One tiny kernel per rule of the device that the emulator enforces: probe_rules NAME runs it.
//
// Every probe breaks exactly one rule, except those named "fine ...", which show that the legal
// neighbour of a broken case is accepted. Without arguments the names are listed, each with the
// rule the emulator must name.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernel_operator.h"

using namespace AscendC;  // NOLINT: the probes read like kernels

namespace {

using In = TQue<TPosition::VECIN, 1>;
using Out = TQue<TPosition::VECOUT, 1>;
using Buffer = TBuf<TPosition::VECCALC>;
constexpr uint64_t kMask = 64;

alignas(64) float source_data[1024];
alignas(64) float target_data[1024];

GlobalTensor<float> SourceTensor() {
  GlobalTensor<float> t;
  t.SetGlobalBuffer(source_data, 1024);
  return t;
}
GlobalTensor<float> TargetTensor() {
  GlobalTensor<float> t;
  t.SetGlobalBuffer(target_data, 1024);
  return t;
}

/// A buffer of `count` initialised elements.
LocalTensor<float> Filled(TPipe& pipe, Buffer& buffer, int32_t count) {
  pipe.InitBuffer(buffer, static_cast<uint32_t>(count) * 4);
  LocalTensor<float> t = buffer.Get<float>();
  Duplicate(t, 1.0f, count);
  PipeBarrier<PIPE_V>();
  return t;
}

struct Probe {
  const char* name;
  const char* rule;  // "" when the probe must pass
  std::function<void()> run;
};

void Transpose(LocalTensor<float> dst, LocalTensor<float> src, uint8_t repeats, uint16_t stride) {
  uint64_t to[16];
  uint64_t from[16];
  for (uint32_t i = 0; i < 16; ++i) {
    to[i] = dst[i * 8].GetPhyAddr();
    from[i] = src[i * 8].GetPhyAddr();
  }
  TransDataTo5HDParams params;
  params.repeatTimes = repeats;
  params.dstRepStride = stride;
  params.srcRepStride = stride;
  TransDataTo5HD<float>(to, from, params);
}

const std::vector<Probe>& Probes() {
  static const std::vector<Probe> probes = {
      {"operand off alignment", "alignment", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Add(t[4], t[64], t[128], 64);
       }},
      {"destination block stride 0", "stride", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Add(t, t[64], t[128], kMask, 1, BinaryRepeatParams(0, 1, 1, 8, 8, 8));
       }},
      {"mask beyond a repeat", "mask", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Add(t, t[64], t[128], uint64_t{65}, 1, BinaryRepeatParams());
       }},
      {"fine: repeat 0 and count 0 do nothing", "", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 64);
         Add(t, t, t, kMask, 0, BinaryRepeatParams());
         Muls(t, t, 2.0f, 0);
         Duplicate(t, 2.0f, 0);
       }},
      {"unified buffer over budget", "UB budget", [] {
         TPipe pipe;
         Buffer b;
         pipe.InitBuffer(b, 192 * 1024 - 256 - 8 * 1024 + 32);
       }},
      {"fine: the whole usable unified buffer", "", [] {
         TPipe pipe;
         Buffer b;
         pipe.InitBuffer(b, 192 * 1024 - 256 - 8 * 1024);
       }},
      {"65 buffers", "InitBuffer", [] {
         TPipe pipe;
         std::vector<Buffer> buffers(65);
         for (auto& b : buffers) pipe.InitBuffer(b, 32);
       }},
      {"nine queue buffers at one position", "InitBuffer", [] {
         TPipe pipe;
         std::vector<In> queues(5);
         for (auto& q : queues) pipe.InitBuffer(q, 2, 32);
       }},
      {"copy of 36 bytes", "DataCopy", [] {
         TPipe pipe;
         In q;
         pipe.InitBuffer(q, 1, 64);
         auto t = q.AllocTensor<float>();
         DataCopy(t, SourceTensor(), 9);
       }},
      {"copy beyond the local tensor", "bounds", [] {
         TPipe pipe;
         In q;
         pipe.InitBuffer(q, 1, 64);
         auto t = q.AllocTensor<float>();
         DataCopy(t, SourceTensor(), 24);
       }},
      {"copy beyond the global tensor", "global bounds", [] {
         TPipe pipe;
         In q;
         pipe.InitBuffer(q, 1, 64);
         auto t = q.AllocTensor<float>();
         DataCopy(t, SourceTensor()[1016], 16);
       }},
      {"global buffer longer than its tensor", "global bounds", [] {
         GlobalTensor<float> t;
         t.SetGlobalBuffer(source_data, 1025);
       }},
      {"write to an input tensor", "global bounds", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 64);
         SetFlag<HardEvent::V_MTE3>(0);
         WaitFlag<HardEvent::V_MTE3>(0);
         DataCopy(SourceTensor(), t, 64);
       }},
      {"two cores write one line", "global race", [] {
         for (int core = 0; core < 2; ++core) {
           emu::StartCore(core, 2, 0xFB);
           TPipe pipe;
           Buffer b;
           auto t = Filled(pipe, b, 64);
           SetFlag<HardEvent::V_MTE3>(0);
           WaitFlag<HardEvent::V_MTE3>(0);
           DataCopy(TargetTensor(), t, 64);
         }
       }},
      {"read of what another core wrote", "global race", [] {
         emu::StartCore(0, 2, 0xFB);
         {
           TPipe pipe;
           Buffer b;
           auto t = Filled(pipe, b, 64);
           SetFlag<HardEvent::V_MTE3>(0);
           WaitFlag<HardEvent::V_MTE3>(0);
           DataCopy(TargetTensor(), t, 64);
         }
         emu::StartCore(1, 2, 0xFB);
         (void)TargetTensor().GetValue(3);
       }},
      {"write over what another core read", "global race", [] {
         emu::StartCore(0, 2, 0xFB);
         (void)TargetTensor().GetValue(3);
         emu::StartCore(1, 2, 0xFB);
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 64);
         SetFlag<HardEvent::V_MTE3>(0);
         WaitFlag<HardEvent::V_MTE3>(0);
         DataCopy(TargetTensor(), t, 64);
       }},
      {"read of unwritten bytes", "uninitialised", [] {
         TPipe pipe;
         Buffer b;
         pipe.InitBuffer(b, 512);
         auto t = b.Get<float>();
         Muls(t, t[64], 1.0f, 64);
       }},
      {"read of a part of a block that was not written", "uninitialised", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 4);
         Muls(t, t, 1.0f, 5);
       }},
      {"allocated tensor keeps no content", "uninitialised", [] {
         TPipe pipe;
         In q;
         pipe.InitBuffer(q, 1, 256);
         for (int round = 0; round < 2; ++round) {
           auto t = q.AllocTensor<float>();
           if (round == 0) DataCopy(t, SourceTensor(), 64);
           q.EnQue(t);
           t = q.DeQue<float>();
           Muls(t, t, 1.0f, 64);
           q.FreeTensor(t);
         }
       }},
      {"partial overlap within a repeat", "overlap", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Add(t[8], t, t[128], 64);
       }},
      {"repeat reads an earlier repeat's result", "overlap", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 512);
         Add(t[64], t, t[256], 128);
       }},
      {"fine: in place", "", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Add(t, t, t[128], 128);
       }},
      {"vector read after write without barrier", "race read-after-write", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Muls(t, t[128], 2.0f, 64);
         Muls(t[64], t, 2.0f, 64);
       }},
      {"vector write after write without barrier", "race write-after-write", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Muls(t, t[128], 2.0f, 64);
         Muls(t, t[128], 3.0f, 64);
       }},
      {"copy in over what the vector unit reads", "race write-after-read", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         SetFlag<HardEvent::V_MTE2>(0);
         Muls(t, t[128], 2.0f, 64);
         WaitFlag<HardEvent::V_MTE2>(0);
         DataCopy(t[128], SourceTensor(), 64);
       }},
      {"barrier of another pipe", "race read-after-write", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Muls(t, t[128], 2.0f, 64);
         PipeBarrier<PIPE_MTE2>();
         Muls(t[64], t, 2.0f, 64);
       }},
      {"fine: PIPE_ALL orders everything", "", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Muls(t, t[128], 2.0f, 64);
         PipeBarrier<PIPE_ALL>();
         DataCopy(TargetTensor(), t, 64);
         (void)t.GetValue(0);
       }},
      {"scalar read without event", "race read-after-write", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 64);
         (void)t.GetValue(0);
       }},
      {"DeQue from an empty queue", "queue", [] {
         TPipe pipe;
         In q;
         pipe.InitBuffer(q, 1, 256);
         (void)q.DeQue<float>();
       }},
      {"AllocTensor with none free", "queue", [] {
         TPipe pipe;
         In q;
         pipe.InitBuffer(q, 1, 256);
         (void)q.AllocTensor<float>();
         (void)q.AllocTensor<float>();
       }},
      {"EnQue of a foreign tensor", "queue", [] {
         TPipe pipe;
         In q;
         In other;
         pipe.InitBuffer(q, 1, 256);
         pipe.InitBuffer(other, 1, 256);
         auto t = other.AllocTensor<float>();
         q.EnQue(t);
       }},
      {"EnQue beyond the queue's depth", "queue", [] {
         TPipe pipe;
         In q;
         pipe.InitBuffer(q, 2, 256);
         auto a = q.AllocTensor<float>();
         auto b = q.AllocTensor<float>();
         q.EnQue(a);
         q.EnQue(b);
       }},
      {"tensor freed twice", "queue", [] {
         TPipe pipe;
         Out q;
         pipe.InitBuffer(q, 1, 256);
         auto t = q.AllocTensor<float>();
         q.FreeTensor(t);
         q.FreeTensor(t);
       }},
      {"tensor still held at exit", "queue", [] {
         TPipe pipe;
         Out q;
         pipe.InitBuffer(q, 2, 256);
         (void)q.AllocTensor<float>();
       }},
      {"event set at exit", "event", [] {
         TPipe pipe;
         SetFlag<HardEvent::V_S>(0);
       }},
      {"event set twice", "SetFlag", [] {
         TPipe pipe;
         SetFlag<HardEvent::V_S>(0);
         SetFlag<HardEvent::V_S>(0);
       }},
      {"wait for an event nobody set", "WaitFlag", [] {
         TPipe pipe;
         WaitFlag<HardEvent::V_S>(0);
       }},
      {"reserved event id", "SetFlag", [] {
         TPipe pipe;
         SetFlag<HardEvent::V_S>(6);
       }},
      {"cast to bf16 without rounding mode", "Cast", [] {
         TPipe pipe;
         Buffer b;
         Buffer narrow;
         auto t = Filled(pipe, b, 64);
         pipe.InitBuffer(narrow, 128);
         Cast(narrow.Get<bfloat16_t>(), t, RoundMode::CAST_NONE, 64);
       }},
      {"widening cast with a rounding mode", "Cast", [] {
         TPipe pipe;
         Buffer b;
         Buffer narrow;
         auto t = Filled(pipe, b, 64);
         pipe.InitBuffer(narrow, 128);
         Cast(narrow.Get<half>(), t, RoundMode::CAST_RINT, 64);
         PipeBarrier<PIPE_V>();
         Cast(t, narrow.Get<half>(), RoundMode::CAST_RINT, 64);
       }},
      {"reduction workspace too small", "ReduceSum", [] {
         TPipe pipe;
         Buffer b;
         Buffer work;
         auto t = Filled(pipe, b, 1024);
         pipe.InitBuffer(work, 32);
         ReduceSum(t, t, work.Get<float>(), 1024);
       }},
      {"transpose of one repeat adds the stride", "bounds", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Transpose(t[128], t, 1, 16);
       }},
      {"fine: transpose of one repeat without stride", "", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 256);
         Transpose(t[128], t, 1, 0);
       }},
      {"fine: transpose of two repeats counts from zero", "", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 512);
         Transpose(t[256], t, 2, 16);
       }},
      {"square root is not correctly rounded", "", [] {
         TPipe pipe;
         Buffer b;
         auto t = Filled(pipe, b, 64);
         Sqrt(t, t, 64);
         PipeBarrier<PIPE_ALL>();
         // The probe passes when the emulator moved the result off the exact value.
         if (t.GetValue(0) == 1.0f) emu::Fail("approximation", "the square root of 1 came out exact");
       }},
  };
  return probes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    for (const Probe& probe : Probes()) std::printf("%s\t%s\n", probe.name, probe.rule);
    return 0;
  }
  emu::RegisterGlobal("source", source_data, sizeof source_data, false);
  emu::RegisterGlobal("target", target_data, sizeof target_data, true);
  for (const Probe& probe : Probes()) {
    if (std::strcmp(probe.name, argv[1]) != 0) continue;
    emu::StartCore(0, 1, 0xFB);
    probe.run();
    return 0;
  }
  std::fprintf(stderr, "no probe '%s'\n", argv[1]);
  return 2;
}
