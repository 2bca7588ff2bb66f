#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "common/status.h"
#include "common/text.h"

namespace mla::cuda {

// Says that `what` failed with `error`, unless that is success.
inline Status check(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // otherwise the next launch would report it again
  const bool device = error == cudaErrorNoDevice || error == cudaErrorInvalidDevice ||
                      error == cudaErrorNoKernelImageForDevice ||
                      error == cudaErrorDevicesUnavailable || error == cudaErrorInsufficientDriver;
  return Status::error(device ? MLA_DEVICE : MLA_INTERNAL, what,
                       text(cudaGetErrorName(error), ": ", cudaGetErrorString(error)), "success");
}

// A function of the driver, which is found at run time because a payload does not link with
// libcuda.
template <class Function>
class DriverFunction {
 public:
  DriverFunction(const char* name, unsigned version) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &result);
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) {
      function_ = reinterpret_cast<Function*>(address);
    } else {
      (void)cudaGetLastError();
    }
  }

  template <class... Arguments>
  CUresult operator()(Arguments... arguments) const {
    return function_ == nullptr ? CUDA_ERROR_NOT_FOUND : function_(arguments...);
  }

 private:
  Function* function_ = nullptr;
};

// Makes `device` current until the end of the scope. What was current, perhaps nothing, is put back
// by the driver, because cudaSetDevice would initialise a device that the caller never used.
class DeviceGuard {
 public:
  explicit DeviceGuard(int32_t device) {
    int current = -1;
    status_ = check(cudaGetDevice(&current), "device");
    if (!status_.ok()) return;
    static const DriverFunction<CUresult(CUcontext*)> get_current("cuCtxGetCurrent", 4000);
    if (get_current(&previous_) != CUDA_SUCCESS) {
      status_ = check(cudaErrorInsufficientDriver, "device");
      return;
    }
    if (previous_ != nullptr && current == device) return;
    changed_ = true;
    status_ = check(cudaSetDevice(device), "device");
  }

  ~DeviceGuard() {
    static const DriverFunction<CUresult(CUcontext)> set_current("cuCtxSetCurrent", 4000);
    if (changed_) (void)set_current(previous_);
  }

  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  Status status() const { return status_; }

 private:
  Status status_;
  CUcontext previous_ = nullptr;
  bool changed_ = false;
};

// Counts the multiprocessors of a device, which never change.
inline Status sm_count(int32_t device, int* count) {
  constexpr int32_t kMaxCached = 64;
  static std::atomic<int> cached[kMaxCached];
  const bool cacheable = device >= 0 && device < kMaxCached;
  *count = cacheable ? cached[device].load(std::memory_order_relaxed) : 0;
  if (*count > 0) return {};
  MLA_TRY(check(cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device), "device"));
  if (cacheable) cached[device].store(*count, std::memory_order_relaxed);
  return {};
}

}  // namespace mla::cuda
