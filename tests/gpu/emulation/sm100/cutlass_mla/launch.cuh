// Stands in for the header of the same name, so that the sm100 payload runs on a GPU without
// Blackwell's tensor cores: a plain kernel reads what CUTLASS's kernel would read, from the same
// parameters, and writes what it would write, one head at a time. It masks, skips and splits as
// that kernel does, and it too loads the last tile of a row whole.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"
#include "cutlass/numeric_conversion.h"
#include "sm100/cutlass_mla/check_tensor_maps.cuh"

// What a launch does: 0 computes, 1 launches an empty kernel of the same shape, 2 launches nothing,
// 3 computes after it has checked every tensor map.
extern "C" {
__attribute__((visibility("default"))) inline int mla_emulation_mode = 0;
}

namespace mla::sm100 {

inline constexpr int kEmulationThreads = 128;

template <class Kernel>
struct TileReader {
  using Element = typename Kernel::Element;
  const typename Kernel::Params& params;
  int row;

  // Null for a token that TMA would fill with zeros, or an address that no page has.
  __device__ const Element* latent(int token, bool* valid) const {
    return at(params.mainloop.ptr_c_latent, params.mainloop.stride_c_latent, token, valid);
  }
  __device__ const Element* rope(int token, bool* valid) const {
    return at(params.mainloop.ptr_k_rope, params.mainloop.stride_k_rope, token, valid);
  }

  template <class Stride>
  __device__ const Element* at(const Element* base, const Stride& stride, int token,
                               bool* valid) const {
    const auto& main = params.mainloop;
    int64_t page = row;
    int offset = token;
    if (main.ptr_page_table != nullptr) {
      const int64_t entry =
          int64_t{row} * cute::get<1>(main.stride_page_table) + token / main.page_size;
      page = main.ptr_page_table[entry];
      offset = token % main.page_size;
      if (page < 0 || page >= main.page_count) *valid = false;
    } else if (token >= cute::get<1>(params.problem_shape)) {
      return nullptr;
    }
    return *valid ? base + offset * cute::get<0>(stride) + page * cute::get<2>(stride) : nullptr;
  }
};

__device__ inline float block_reduce(float value, bool maximum) {
  __shared__ float shared[kEmulationThreads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int n = kEmulationThreads / 2; n > 0; n /= 2) {
    if (threadIdx.x < n) {
      const float other = shared[threadIdx.x + n];
      shared[threadIdx.x] =
          maximum ? fmaxf(shared[threadIdx.x], other) : shared[threadIdx.x] + other;
    }
    __syncthreads();
  }
  const float result = shared[0];
  __syncthreads();
  return result;
}

template <class Kernel>
__global__ void __launch_bounds__(kEmulationThreads)
    emulate(const __grid_constant__ typename Kernel::Params params) {
  using Element = typename Kernel::Element;
  using ElementOut = typename Kernel::ElementOut;
  constexpr int kLatentDim = Kernel::TileShapeL::value;
  constexpr int kRopeDim = 64;
  constexpr int kTile = 128;
  constexpr int kColumns = kLatentDim / kEmulationThreads;
  __shared__ float query[kLatentDim + kRopeDim];
  __shared__ float weights[kTile];
  const int head = blockIdx.x;
  const int row = blockIdx.y;
  const int split = blockIdx.z;
  const auto& main = params.mainloop;
  const auto& epilogue = params.epilogue;

  int tokens = cute::get<1>(params.problem_shape);
  int splits = params.split_kv;
  if (main.ptr_seq != nullptr) {
    tokens = main.ptr_seq[row];
    if (params.ptr_split_kv != nullptr) splits = params.ptr_split_kv[row];
  }
  if (splits <= split) return;
  const int tiles = cute::ceil_div(tokens, kTile);
  const int tiles_each = cute::ceil_div(tiles, splits);
  const int first = split * tiles_each;
  const int last = min(tiles, first + tiles_each);
  bool valid = last > first;  // an empty part would hang the kernel: poison the result

  for (int d = threadIdx.x; d < kLatentDim; d += kEmulationThreads) {
    query[d] = static_cast<float>(main.ptr_q_latent[head * cute::get<0>(main.stride_q_latent) +
                                                    row * cute::get<2>(main.stride_q_latent) + d]);
  }
  if (threadIdx.x < kRopeDim) {
    query[kLatentDim + threadIdx.x] =
        static_cast<float>(main.ptr_q_rope[head * cute::get<0>(main.stride_q_rope) +
                                           row * cute::get<2>(main.stride_q_rope) + threadIdx.x]);
  }
  __syncthreads();

  const TileReader<Kernel> reader{params, row};
  float row_max = -INFINITY;
  float row_sum = 0;
  float out[kColumns] = {};
  for (int tile = first; tile < last; ++tile) {
    const int token = tile * kTile + static_cast<int>(threadIdx.x);
    const Element* latent = reader.latent(token, &valid);
    const Element* rope = reader.rope(token, &valid);
    float score = 0;
    if (latent != nullptr && rope != nullptr) {
      for (int d = 0; d < kLatentDim; ++d) score += query[d] * static_cast<float>(latent[d]);
      for (int d = 0; d < kRopeDim; ++d)
        score += query[kLatentDim + d] * static_cast<float>(rope[d]);
    }
    if (token >= tokens) score = -INFINITY;
    const float new_max = fmaxf(row_max, block_reduce(score, true));
    const float correction = expf(main.softmax_scale * (row_max - new_max));
    row_max = new_max;
    const float weight = expf(main.softmax_scale * (score - new_max));
    row_sum = row_sum * correction + block_reduce(weight, false);
    weights[threadIdx.x] = static_cast<float>(cutlass::NumericConverter<Element, float>{}(weight));
    for (float& value : out) value *= correction;
    __syncthreads();
    for (int t = 0; t < kTile; ++t) {
      bool present = true;
      const Element* value = reader.latent(tile * kTile + t, &present);
      if (value == nullptr) continue;
      for (int i = 0; i < kColumns; ++i) {
        out[i] += weights[t] * static_cast<float>(value[threadIdx.x + i * kEmulationThreads]);
      }
    }
    __syncthreads();
  }
  valid = __syncthreads_and(valid);
  const float scale = valid ? epilogue.output_scale / row_sum : NAN;
  const float lse = logf(row_sum) + main.softmax_scale * row_max;
  if (cute::ceil_div(tiles, tiles_each) > 1) {
    float* to = epilogue.ptr_o_acc + split * int64_t{kLatentDim} +
                head * cute::get<0>(epilogue.stride_o_acc) +
                row * cute::get<2>(epilogue.stride_o_acc);
    for (int i = 0; i < kColumns; ++i) to[threadIdx.x + i * kEmulationThreads] = out[i] * scale;
    if (threadIdx.x == 0 && epilogue.ptr_lse != nullptr) {
      epilogue.ptr_lse_acc[int64_t{split} * 128 + head +
                           int64_t{row} * cute::get<1>(epilogue.stride_lse_acc)] = lse;
    }
    return;
  }
  ElementOut* to = epilogue.ptr_o + head * cute::get<0>(epilogue.stride_o) +
                   row * cute::get<2>(epilogue.stride_o);
  for (int i = 0; i < kColumns; ++i) {
    to[threadIdx.x + i * kEmulationThreads] = static_cast<ElementOut>(out[i] * scale);
  }
  if (threadIdx.x == 0 && epilogue.ptr_lse != nullptr) {
    epilogue.ptr_lse[head + int64_t{row} * cute::get<1>(epilogue.stride_lse)] = lse;
  }
}

template <class Kernel>
__global__ void idle(const __grid_constant__ typename Kernel::Params) {}

template <class Kernel>
cudaError_t prepare_mainloop() {
  return cudaSuccess;
}

template <class Kernel>
cudaError_t max_active_blocks(int* blocks) {
  *blocks = 1;
  return cudaSuccess;
}

template <class Kernel>
cudaError_t launch_mainloop(const typename Kernel::Params& params, cudaStream_t stream) {
  if (mla_emulation_mode == 2) return cudaSuccess;
  if (mla_emulation_mode == 1) {
    idle<Kernel><<<Kernel::get_grid_shape(params), Kernel::get_block_shape(), 0, stream>>>(params);
    return cudaGetLastError();
  }
  if (mla_emulation_mode == 3) {
    const cudaError_t error = check_descriptors<Kernel>(params, stream);
    if (error != cudaSuccess) return error;
  }
  const unsigned rows = static_cast<unsigned>(cute::get<3>(params.problem_shape));
  const unsigned splits = static_cast<unsigned>(params.split_kv);
  emulate<Kernel><<<dim3(128, rows, splits), kEmulationThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace mla::sm100
