// SPDX-License-Identifier: Apache-2.0
//
// The part of AscendCL that has to do something: one device "Ascend910B2" whose memory is the
// host's and whose streams complete at once. Signatures are checked against the headers in the
// torch_npu wheel; every other symbol that torch_npu asks for is a stub that returns 0
// (symbols.py).
//
// Built-in operators fail: a stub that reported success would leave its output uninitialised.
#include <acl/acl.h>
#include <acl/acl_op_compiler.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

extern "C" {
// What a test may look at.
std::atomic<uint64_t> fake_cann_synchronisations{0};  // the host waited for stream, event or device
std::atomic<uint64_t> fake_cann_copies{0};
std::atomic<uint64_t> fake_cann_refused_operators{0};
}

namespace {

constexpr size_t kDeviceBytes = size_t{4} << 30;
constexpr size_t kAlignment = 512;
constexpr int64_t kVectorCores = 48;
constexpr int64_t kCubeCores = 24;

/// Live device allocations, by address.
class DeviceMemory {
 public:
  void* Allocate(size_t bytes) {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (used_ + rounded > kDeviceBytes) return nullptr;
    void* memory = std::aligned_alloc(kAlignment, rounded);
    // All ones is NaN in every float format: what nobody wrote shows up in a result.
    std::memset(memory, 0xFF, rounded);
    used_ += rounded;
    sizes_[static_cast<char*>(memory)] = rounded;
    return memory;
  }

  bool Free(void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sizes_.find(static_cast<char*>(memory));
    if (found == sizes_.end()) return false;
    used_ -= found->second;
    sizes_.erase(found);
    std::free(memory);
    return true;
  }

  bool Holds(const void* begin, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const char* address = static_cast<const char*>(begin);
    auto next = sizes_.upper_bound(const_cast<char*>(address));
    if (next == sizes_.begin()) return false;
    --next;
    return address + bytes <= next->first + next->second;
  }

  size_t used() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return used_;
  }

 private:
  std::mutex mutex_;
  std::map<char*, size_t> sizes_;
  size_t used_ = 0;
};

// Never destroyed: torch_npu frees memory in destructors of static objects.
DeviceMemory& Memory() {
  static DeviceMemory& memory = *new DeviceMemory;
  return memory;
}

aclError Copy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind) {
  if (bytes > room) return ACL_ERROR_INVALID_PARAM;
  const bool to_device = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  const bool from_device = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
  if (to_device && !Memory().Holds(to, bytes)) return ACL_ERROR_INVALID_PARAM;
  if (from_device && !Memory().Holds(from, bytes)) return ACL_ERROR_INVALID_PARAM;
  ++fake_cann_copies;
  std::memmove(to, from, bytes);
  return ACL_SUCCESS;
}

aclError Fill(void* memory, size_t room, int32_t value, size_t bytes) {
  if (bytes > room || !Memory().Holds(memory, bytes)) return ACL_ERROR_INVALID_PARAM;
  std::memset(memory, value, bytes);
  return ACL_SUCCESS;
}

aclError Waited() {
  ++fake_cann_synchronisations;
  return ACL_SUCCESS;
}

aclError NewHandle(void** handle) {
  *handle = new int64_t{0};
  return ACL_SUCCESS;
}

aclError Delete(void* handle) {
  delete static_cast<int64_t*>(handle);
  return ACL_SUCCESS;
}

aclError RefuseOperator() {
  ++fake_cann_refused_operators;
  return ACL_ERROR_FEATURE_UNSUPPORTED;
}

int64_t context;

}  // namespace

/// Whether all of [begin, begin + bytes) is allocated device memory.
extern "C" bool fake_cann_holds(const void* begin, size_t bytes) { return Memory().Holds(begin, bytes); }

// ---- Device.
aclError aclrtGetDeviceCount(uint32_t* count) {
  *count = 1;
  return ACL_SUCCESS;
}
aclError aclrtGetDevice(int32_t* device) {
  *device = 0;
  return ACL_SUCCESS;
}
aclError aclrtSetDevice(int32_t device) { return device == 0 ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM; }
const char* aclrtGetSocName() { return "Ascend910B2"; }
aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo info, int64_t* value) {
  *value = info == ACL_DEVICE_INFO_VECTOR_CORE_NUM ? kVectorCores : kCubeCores;
  return ACL_SUCCESS;
}
aclError aclrtGetDeviceInfo(uint32_t, aclrtDevAttr attribute, int64_t* value) {
  *value = attribute == ACL_DEV_ATTR_VECTOR_CORE_NUM ? kVectorCores : kCubeCores;
  return ACL_SUCCESS;
}
aclError aclrtGetCurrentContext(aclrtContext* current) {
  *current = &context;
  return ACL_SUCCESS;
}
aclError aclrtCreateContext(aclrtContext* created, int32_t) {
  *created = &context;
  return ACL_SUCCESS;
}
aclError aclrtGetPrimaryCtxState(int32_t, uint32_t* flags, int32_t* active) {
  *flags = 0;
  *active = 1;
  return ACL_SUCCESS;
}
aclError aclrtGetRunMode(aclrtRunMode* mode) {
  *mode = ACL_HOST;
  return ACL_SUCCESS;
}
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return ACL_SUCCESS; }
const char* aclGetRecentErrMsg() { return "the fake CANN runtime has no built-in operators"; }

// ---- Memory.
aclError aclrtMalloc(void** memory, size_t bytes, aclrtMemMallocPolicy) {
  *memory = Memory().Allocate(bytes);
  return *memory == nullptr ? ACL_ERROR_BAD_ALLOC : ACL_SUCCESS;
}
aclError aclrtMallocAlign32(void** memory, size_t bytes, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(memory, bytes, policy);
}
aclError aclrtMallocWithCfg(void** memory, size_t bytes, aclrtMemMallocPolicy policy, aclrtMallocConfig*) {
  return aclrtMalloc(memory, bytes, policy);
}
aclError aclrtFree(void* memory) { return Memory().Free(memory) ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM; }
aclError aclrtMallocHost(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return ACL_SUCCESS;
}
aclError aclrtFreeHost(void* memory) {
  std::free(memory);
  return ACL_SUCCESS;
}
aclError aclrtGetMemInfo(aclrtMemAttr, size_t* free, size_t* total) {
  *total = kDeviceBytes;
  *free = kDeviceBytes - Memory().used();
  return ACL_SUCCESS;
}
aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind) {
  return Copy(to, room, from, bytes, kind);
}
aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind, aclrtStream) {
  return Copy(to, room, from, bytes, kind);
}
aclError aclrtMemcpyAsyncWithCondition(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind,
                                       aclrtStream) {
  return Copy(to, room, from, bytes, kind);
}
aclError aclrtMemset(void* memory, size_t room, int32_t value, size_t bytes) { return Fill(memory, room, value, bytes); }
aclError aclrtMemsetAsync(void* memory, size_t room, int32_t value, size_t bytes, aclrtStream) {
  return Fill(memory, room, value, bytes);
}

// ---- Streams and events.
aclError aclrtCreateStream(aclrtStream* stream) { return NewHandle(stream); }
aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) { return NewHandle(stream); }
aclError aclrtDestroyStream(aclrtStream stream) { return Delete(stream); }
aclError aclrtDestroyStreamForce(aclrtStream stream) { return Delete(stream); }
aclError aclrtCreateEvent(aclrtEvent* event) { return NewHandle(event); }
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t) { return NewHandle(event); }
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) { return NewHandle(event); }
aclError aclrtDestroyEvent(aclrtEvent event) { return Delete(event); }
aclError aclrtStreamQuery(aclrtStream, aclrtStreamStatus* status) {
  *status = ACL_STREAM_STATUS_COMPLETE;
  return ACL_SUCCESS;
}
aclError aclrtQueryEventStatus(aclrtEvent, aclrtEventRecordedStatus* status) {
  *status = ACL_EVENT_RECORDED_STATUS_COMPLETE;
  return ACL_SUCCESS;
}
aclError aclrtQueryEventWaitStatus(aclrtEvent, aclrtEventWaitStatus* status) {
  *status = ACL_EVENT_WAIT_STATUS_COMPLETE;
  return ACL_SUCCESS;
}
aclError aclrtSynchronizeStream(aclrtStream) { return Waited(); }
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream, int32_t) { return Waited(); }
aclError aclrtSynchronizeEvent(aclrtEvent) { return Waited(); }
aclError aclrtSynchronizeDevice() { return Waited(); }
aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return Waited(); }
aclError aclrtDeviceGetStreamPriorityRange(int32_t* least, int32_t* greatest) {
  *least = 0;
  *greatest = 0;
  return ACL_SUCCESS;
}

// ---- Options, accepted without effect.
size_t aclGetCompileoptSize(aclCompileOpt) { return 2; }
aclError aclGetCompileopt(aclCompileOpt, char* value, size_t length) {
  if (length < 2) return ACL_ERROR_INVALID_PARAM;
  std::memcpy(value, "0", 2);
  return ACL_SUCCESS;
}
aclError aclSetCompileopt(aclCompileOpt, const char*) { return ACL_SUCCESS; }

aclError aclrtGetSysParamOpt(aclSysParamOpt, int64_t* value) {
  *value = 0;
  return ACL_SUCCESS;
}
aclError aclrtSetSysParamOpt(aclSysParamOpt, int64_t) { return ACL_SUCCESS; }
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt, int64_t) { return ACL_SUCCESS; }
aclError aclrtSetOpExecuteTimeOut(uint32_t) { return ACL_SUCCESS; }
aclError aclrtSetOpWaitTimeout(uint32_t) { return ACL_SUCCESS; }

// ---- Built-in operators.
aclError aclopCompileAndExecute(const char*, int, const aclTensorDesc* const[], const aclDataBuffer* const[], int,
                                const aclTensorDesc* const[], aclDataBuffer* const[], const aclopAttr*, aclopEngineType,
                                aclopCompileType, const char*, aclrtStream) {
  return RefuseOperator();
}
aclError aclopCompileAndExecuteV2(const char*, int, aclTensorDesc*[], aclDataBuffer*[], int, aclTensorDesc*[],
                                  aclDataBuffer*[], aclopAttr*, aclopEngineType, aclopCompileType, const char*,
                                  aclrtStream) {
  return RefuseOperator();
}
