// Launches of an attention kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/launch.h"
#include "sm90/scheduler/shape.h"

namespace mla::sm90 {

struct Kernel {
  const void* function;
  int threads;
  int cluster;
  size_t shared_bytes;
};

inline Status prepare_kernel(const Kernel& kernel) {
  return cuda::check(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kernel.shared_bytes)),
      "kernel");
}

// Launches a kernel whose blocks all run at once if they combine what they have split.
//
// @post `*fits` says whether the stream has room for that; nothing was launched if it does not.
template <class Params>
Status launch_kernel(const Kernel& kernel, const Params& params, cudaStream_t stream, bool* fits) {
  const Shape& shape = params.shape;
  cudaLaunchConfig_t config = {};
  config.gridDim = {static_cast<unsigned>(shape.groups * shape.cluster),
                    static_cast<unsigned>(shape.parts), 1};
  config.blockDim = {static_cast<unsigned>(kernel.threads), 1, 1};
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(kernel.cluster), 1, 1};
  attributes[2].id = cudaLaunchAttributeCooperative;
  attributes[2].val.cooperative = params.combines;
  config.attrs = attributes;
  config.numAttrs = 3;
  void* arguments[] = {const_cast<Params*>(&params)};
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel.function, arguments);
  *fits = error != cudaErrorCooperativeLaunchTooLarge;
  if (!*fits) cudaGetLastError();
  return *fits ? cuda::check(error, "launch of attention") : Status();
}

}  // namespace mla::sm90
