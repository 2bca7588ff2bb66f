// The one place that launches CUTLASS's kernel.
#pragma once

#include <cuda_runtime.h>

#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"

namespace mla::sm100 {

// Shared memory beyond 48 KB has to be asked for on each device, not once a process.
template <class Kernel>
cudaError_t prepare_mainloop() {
  return cudaFuncSetAttribute(cutlass::device_kernel<Kernel>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              Kernel::SharedStorageSize);
}

// Blocks that a multiprocessor holds at a time; 0 if the device cannot run the kernel.
template <class Kernel>
cudaError_t max_active_blocks(int* blocks) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, cutlass::device_kernel<Kernel>,
                                                       Kernel::MaxThreadsPerBlock,
                                                       Kernel::SharedStorageSize);
}

template <class Kernel>
cudaError_t launch_mainloop(const typename Kernel::Params& params, cudaStream_t stream) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cute::size<0>(typename Kernel::ClusterShape{});
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = Kernel::get_grid_shape(params);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, cutlass::device_kernel<Kernel>, params);
}

}  // namespace mla::sm100
