// SPDX-License-Identifier: Apache-2.0
//
// torch aborts when an allocator option is registered twice. A CUDA build of torch has registered
// options that torch_npu registers again; a machine has one of the two, except here. So those that
// are not torch's own are forgotten between `import torch` and `import torch_npu` (activate.py).
#include <cstddef>
#include <cstring>
#include <string>
#include <unordered_set>

/// Erases from `keys` (a static object inside libc10) every option whose name does not occur in
/// `core`, the bytes of libc10 itself: torch's own options are string literals there. A name of
/// up to 15 characters lives in the string object and may be compiled to immediates, so it stays.
extern "C" void fake_cann_forget_allocator_keys(std::unordered_set<std::string>* keys, const char* core,
                                                size_t core_bytes) {
  for (auto key = keys->begin(); key != keys->end();) {
    const bool own = key->size() < 16 || memmem(core, core_bytes, key->data(), key->size()) != nullptr;
    key = own ? std::next(key) : keys->erase(key);
  }
}
