// SPDX-License-Identifier: Apache-2.0
//
// TPipe, TQue and TBuf: the Unified Buffer budget and the queue discipline.
//
// A queue is two events per buffer. VECIN: EnQue/DeQue is MTE2_V, FreeTensor/AllocTensor is
// V_MTE2. VECOUT: EnQue/DeQue is V_MTE3, FreeTensor/AllocTensor is MTE3_V. A buffer goes
// free -> held -> queued -> taken -> free; everything else is an error. Where the device would
// hang (no free buffer, empty queue) the emulator stops. Sources: asc-devkit
// docs/zh/api/SIMD-API/基础API/资源管理/{TPipe,TQue,TBuf}/*.md
#ifndef EMULATOR_QUEUES_H_
#define EMULATOR_QUEUES_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tensors.h"

namespace emu {

struct QueueBuffer {
  enum class State { kFree, kHeld, kQueued, kTaken };
  size_t offset = 0;
  size_t bytes = 0;
  State state = State::kFree;
  int filled_event = -1;
  int freed_event = -1;
  const void* queue = nullptr;
};

struct QueueState {
  std::vector<QueueBuffer> buffers;
  std::deque<QueueBuffer*> queued;
};

/// Reserves `bytes` of the Unified Buffer, rounded up to whole blocks.
inline size_t Reserve(uint32_t bytes) {
  Core& core = ThisCore();
  EMULATOR_REQUIRE(core.pipe_alive, "InitBuffer", "called without a live TPipe");
  const size_t offset = core.allocated;
  core.allocated += (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  EMULATOR_REQUIRE(core.allocated <= kUsable, "UB budget",
          std::to_string(core.allocated) + " bytes reserved, " + std::to_string(kUsable) + " usable");
  EMULATOR_REQUIRE(++core.buffers <= 64, "InitBuffer", "more than 64 buffers");
  return offset;
}

/// AllocTensor hands out undefined content.
inline void MarkUndefined(const QueueBuffer& buffer) {
  for (size_t at = buffer.offset; at < buffer.offset + buffer.bytes; at += kBlockBytes) {
    ThisCore().blocks[at / kBlockBytes].initialised = 0;
  }
}

}  // namespace emu

namespace AscendC {

template <TPosition position, int depth>
class TQue {
 public:
  static_assert(position != TPosition::VECCALC, "a queue is VECIN or VECOUT");
  static_assert(depth >= 1, "in-place queues (depth 0) are not modelled");

  template <typename T>
  LocalTensor<T> AllocTensor() {
    for (emu::QueueBuffer& buffer : State().buffers) {
      if (buffer.state != emu::QueueBuffer::State::kFree) continue;
      if (buffer.freed_event >= 0) emu::WaitQueueEvent(kFreed, buffer.freed_event);
      buffer.freed_event = -1;
      buffer.state = emu::QueueBuffer::State::kHeld;
      emu::MarkUndefined(buffer);
      return View<T>(buffer);
    }
    emu::Fail("queue", "AllocTensor finds no free buffer (the device would hang)");
  }

  template <typename T>
  bool EnQue(const LocalTensor<T>& tensor) {
    emu::QueueBuffer& buffer = Owned(tensor, "EnQue");
    EMULATOR_REQUIRE(buffer.state == emu::QueueBuffer::State::kHeld, "queue", "EnQue of a tensor that is not held");
    EMULATOR_REQUIRE(State().queued.size() < static_cast<size_t>(depth), "queue",
                 "more tensors enqueued than the queue's depth");
    buffer.state = emu::QueueBuffer::State::kQueued;
    buffer.filled_event = emu::SetQueueEvent(kFilled);
    State().queued.push_back(&buffer);
    return true;
  }

  template <typename T>
  LocalTensor<T> DeQue() {
    EMULATOR_REQUIRE(!State().queued.empty(), "queue", "DeQue from an empty queue (the device would hang)");
    emu::QueueBuffer& buffer = *State().queued.front();
    State().queued.pop_front();
    buffer.state = emu::QueueBuffer::State::kTaken;
    emu::WaitQueueEvent(kFilled, buffer.filled_event);
    return View<T>(buffer);
  }

  template <typename T>
  void FreeTensor(LocalTensor<T>& tensor) {
    emu::QueueBuffer& buffer = Owned(tensor, "FreeTensor");
    EMULATOR_REQUIRE(buffer.state == emu::QueueBuffer::State::kTaken || buffer.state == emu::QueueBuffer::State::kHeld,
                 "queue", "FreeTensor of a tensor that is not held (freed twice?)");
    buffer.state = emu::QueueBuffer::State::kFree;
    buffer.freed_event = emu::SetQueueEvent(kFreed);
  }

  void Init(uint8_t num, uint32_t len) {
    emu::Core& core = emu::ThisCore();
    // One event id per buffer of a position.
    int& used = core.buffers_per_position[static_cast<size_t>(position)];
    EMULATOR_REQUIRE((used += num) <= 8, "InitBuffer", "more than 8 queue buffers at one position");
    state_ = std::make_shared<emu::QueueState>();
    for (int i = 0; i < num; ++i) {
      emu::QueueBuffer buffer;
      buffer.bytes = (len + emu::kBlockBytes - 1) / emu::kBlockBytes * emu::kBlockBytes;
      buffer.offset = emu::Reserve(len);
      buffer.queue = state_.get();
      state_->buffers.push_back(buffer);
    }
    core.queues.push_back(state_);
  }

 private:
  static constexpr HardEvent kFilled = position == TPosition::VECIN ? HardEvent::MTE2_V : HardEvent::V_MTE3;
  static constexpr HardEvent kFreed = position == TPosition::VECIN ? HardEvent::V_MTE2 : HardEvent::MTE3_V;

  emu::QueueState& State() const {
    EMULATOR_REQUIRE(state_ != nullptr, "queue", "used before InitBuffer");
    return *state_;
  }
  template <typename T>
  emu::QueueBuffer& Owned(const LocalTensor<T>& tensor, const char* what) const {
    EMULATOR_REQUIRE(tensor.owner() != nullptr && tensor.owner()->queue == &State(), "queue",
                 std::string(what) + " of a tensor from elsewhere");
    return *tensor.owner();
  }
  template <typename T>
  LocalTensor<T> View(emu::QueueBuffer& buffer) const {
    return LocalTensor<T>(emu::ThisCore().unified.get() + buffer.offset, buffer.bytes, &buffer);
  }

  std::shared_ptr<emu::QueueState> state_;
};

template <TPosition position>
class TBuf {
 public:
  template <typename T>
  LocalTensor<T> Get() {  // not const, as on the device
    EMULATOR_REQUIRE(bytes_ != 0, "TBuf", "Get before InitBuffer");
    return LocalTensor<T>(emu::ThisCore().unified.get() + offset_, bytes_, nullptr);
  }
  void Init(uint32_t len) {
    bytes_ = (len + emu::kBlockBytes - 1) / emu::kBlockBytes * emu::kBlockBytes;
    offset_ = emu::Reserve(len);
  }

 private:
  size_t offset_ = 0;
  size_t bytes_ = 0;
};

class TPipe {
 public:
  TPipe() { emu::ThisCore().pipe_alive = true; }
  TPipe(const TPipe&) = delete;
  TPipe& operator=(const TPipe&) = delete;

  /// Kernel exit: a tensor that was never freed or an event that was never waited for would leak
  /// into the next kernel on this core.
  ~TPipe() {
    emu::Core& core = emu::ThisCore();
    for (const auto& queue : core.queues) {
      for (const emu::QueueBuffer& buffer : queue->buffers) {
        EMULATOR_REQUIRE(buffer.state == emu::QueueBuffer::State::kFree, "queue", "a tensor was never freed");
      }
    }
    for (const auto& ids : core.events) {
      for (const emu::Event& event : ids) {
        EMULATOR_REQUIRE(!event.set || event.queue_owned, "event", "SetFlag without WaitFlag at kernel exit");
      }
    }
    core.pipe_alive = false;
  }

  template <TPosition position, int depth>
  bool InitBuffer(TQue<position, depth>& queue, uint8_t num, uint32_t len) {
    queue.Init(num, len);
    return true;
  }
  template <TPosition position>
  bool InitBuffer(TBuf<position>& buffer, uint32_t len) {
    buffer.Init(len);
    return true;
  }
  TEventID FetchEventID(HardEvent event) { return static_cast<TEventID>(emu::FreeEventId(event)); }
};

}  // namespace AscendC

#endif  // EMULATOR_QUEUES_H_
