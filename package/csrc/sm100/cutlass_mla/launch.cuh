// The only calls of CUTLASS's kernel. Tests put a plain kernel in place of this header, so that the
// payload runs on other GPUs.
#pragma once

#include <cuda_runtime.h>

#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"

namespace mla::sm100 {

// Asks for shared memory beyond 48 KB, which a kernel needs on each device.
template <class Kernel>
cudaError_t prepare_mainloop() {
  return cudaFuncSetAttribute(cutlass::device_kernel<Kernel>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              Kernel::SharedStorageSize);
}

// Counts the blocks that a multiprocessor holds at a time, 0 where the device cannot run the
// kernel.
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
