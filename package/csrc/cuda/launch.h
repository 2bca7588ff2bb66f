// The host side of every op checks its arguments and sizes its grid by these functions.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>

#include "common/arithmetic.h"
#include "common/checks.h"
#include "cuda/device.h"
#include "cuda/warp.h"

namespace mla::cuda {

inline constexpr int kWarps = 8;  // in a block
inline constexpr int kThreads = kWarps * kWarp;

// Returns the blocks of a grid; kernels loop over what is beyond the largest one.
inline unsigned blocks_for(int64_t items, int64_t items_per_block) {
  const int64_t counted = std::min(items, kMaxInt * items_per_block);  // the largest grid
  return static_cast<unsigned>(ceil_div(counted, items_per_block));
}

inline cudaStream_t cuda_stream(Stream stream) { return static_cast<cudaStream_t>(stream); }

// Prepares kernels once on each device, such as by setting their attributes.
class PreparedDevices {
 public:
  // Calls `prepare` with `device` current, unless that has succeeded before. Threads may do so at
  // the same time, since preparing twice does no harm.
  template <class Prepare>
  Status ensure(int32_t device, const Prepare& prepare) {
    if (is_known(device) && prepared_[device].load(std::memory_order_acquire)) return {};
    const DeviceGuard guard(device);
    MLA_TRY(guard.status());
    MLA_TRY(prepare());
    if (is_known(device)) prepared_[device].store(true, std::memory_order_release);
    return {};
  }

 private:
  static constexpr int32_t kMostDevices = 64;
  static bool is_known(int32_t device) { return device >= 0 && device < kMostDevices; }

  std::atomic<bool> prepared_[kMostDevices] = {};
};

// Loads kernels ahead of their first launch, which may be inside a graph capture.
inline Status load_kernels(int32_t device, std::initializer_list<const void*> kernels) {
  const DeviceGuard guard(device);
  MLA_TRY(guard.status());
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    MLA_TRY(check(cudaFuncGetAttributes(&attributes, kernel), "kernel"));
  }
  return {};
}

struct Elements {
  const char* name;
  const void* data;
  int64_t bytes;  // of one element
};

inline bool is_multiple(int64_t value, int64_t of) { return value % of == 0; }

inline bool is_aligned(const void* data, int64_t bytes) {
  return is_multiple(static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)), bytes);
}

inline Status check_aligned(std::initializer_list<Elements> tensors) {
  for (const Elements& tensor : tensors) {
    if (!is_aligned(tensor.data, tensor.bytes)) {
      return Status::error(MLA_ALIGNMENT, tensor.name, "unaligned memory",
                           text("memory aligned to its elements of ", tensor.bytes, " bytes"));
    }
  }
  return {};
}

}  // namespace mla::cuda
