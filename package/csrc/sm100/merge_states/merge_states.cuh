#pragma once

#include <algorithm>
#include <cmath>

#include "cuda/launch.h"
#include "sm100/cutlass_mla/kernel.cuh"
#include "sm100/merge_states/merge_states.h"

namespace mla::sm100 {
namespace merge_states {

using Problem = mla_merge_states_problem;

inline constexpr int kThreads = 128;

inline __device__ int32_t clamped_count(const Problem& p, int64_t t) {
  const int32_t all = static_cast<int32_t>(p.num_states);
  if (p.counts == nullptr) return all;
  const int32_t count = static_cast<const int32_t*>(p.counts)[t * p.counts_stride_t];
  return min(max(count, 0), all);
}

// A state without tokens has the LSE -inf, or +inf as FlashMLA gives it.
inline __device__ bool is_empty(float lse) { return isinf(lse); }

// Writes what the reduction reads. It divides by the count, so it is told 1 where there is nothing,
// and then does nothing. An empty state adds nothing where its LSE is -inf.
template <DType kIn, DType kOut>
__global__ void __launch_bounds__(kThreads) prepare(Problem p, int32_t* counts, float* lse) {
  static_assert(kThreads == kHeads);
  const int64_t state = blockIdx.x;
  const int64_t t = blockIdx.y;
  const int64_t h = threadIdx.x;
  if (state == 0 && h == 0) counts[t] = max(clamped_count(p, t), 1);
  const float* const from = static_cast<const float*>(p.lse);
  const float value = from[t * p.lse_stride_t + state * p.lse_stride_n + h];
  lse[(t * p.num_states + state) * kHeads + h] = is_empty(value) ? -INFINITY : value;
}

// The rows that the reduction leaves alone, one state or none, and those whose states are all
// empty, which it gives an LSE of +inf.
template <DType kIn, DType kOut>
__global__ void __launch_bounds__(kThreads) complete_rows(Problem p) {
  using Element = typename ElementOf<kOut>::Type;
  const int64_t h = blockIdx.x;
  const int64_t t = blockIdx.y;
  const int32_t count = clamped_count(p, t);
  const float* lse = static_cast<const float*>(p.lse) + t * p.lse_stride_t + h;
  bool empty = true;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    empty &= is_empty(lse[i * p.lse_stride_n]);
  }
  empty = __syncthreads_and(empty);
  if (!empty && count > 1) return;
  const float* o = static_cast<const float*>(p.o) + t * p.o_stride_t + h * p.o_stride_h;
  Element* out = static_cast<Element*>(p.out) + t * p.out_stride_t + h * p.out_stride_h;
  for (int i = threadIdx.x; i < kLatent; i += kThreads) {
    out[i] = static_cast<Element>(empty ? 0.0f : isnan(lse[0]) ? NAN : o[i]);
  }
  if (p.out_lse != nullptr && threadIdx.x == 0) {
    static_cast<float*>(p.out_lse)[t * p.out_lse_stride_t + h] = empty ? -INFINITY : lse[0];
  }
}

struct Stride {
  const char* name;
  int64_t extent;
  int64_t stride;
  int64_t wanted;
};

inline Status check_strides(std::initializer_list<Stride> strides) {
  for (const Stride& stride : strides) {
    if (stride.extent > 1 && stride.stride != stride.wanted) {
      return Status::error(MLA_STRIDE, stride.name, text("a stride of ", stride.stride),
                           text(stride.wanted, ", the layout in which the split kernel leaves it"));
    }
  }
  return {};
}

}  // namespace merge_states

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::can_run(const Problem& p) {
  MLA_TRY(check_extents({{"num_states", p.num_states}, {"num_tokens", p.num_tokens}}));
  constexpr int64_t kMaxTokens = 65535;  // of a grid
  if (p.num_heads != kHeads || p.head_dim != kLatent || p.num_states > kMaxSplits ||
      p.num_tokens > kMaxTokens) {
    return Status::error(
        MLA_UNSUPPORTED, "o",
        text("[", p.num_states, ", ", p.num_tokens, ", ", p.num_heads, ", ", p.head_dim, "]"),
        text("up to ", kMaxSplits, " states of up to ", kMaxTokens, " tokens, ", kHeads,
             " heads of ", kLatent));
  }
  const int64_t n = p.num_states;
  return merge_states::check_strides(
      {{"o", n, p.o_stride_n, kLatent},
       {"o", kHeads, p.o_stride_h, n * kLatent},
       {"o", p.num_tokens, p.o_stride_t, n * kHeads * kLatent},
       {"lse", kHeads, p.lse_stride_h, 1},
       {"lse", n, p.lse_stride_n, kHeads},
       {"lse", p.num_tokens, p.lse_stride_t, n * kHeads},
       {"out", kHeads, p.out_stride_h, kLatent},
       {"out", p.num_tokens, p.out_stride_t, kHeads * kLatent},
       {"out_lse", kHeads, p.out_lse == nullptr ? 1 : p.out_lse_stride_h, 1},
       {"out_lse", p.num_tokens, p.out_lse == nullptr ? kHeads : p.out_lse_stride_t, kHeads}});
}

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::workspace_size(const Problem& p, int64_t* bytes) {
  // A count and the LSEs of each token.
  const int64_t states = std::min<int64_t>(p.num_states, kMaxSplits);
  *bytes = saturating_product({p.num_tokens, 1 + states * kHeads, sizeof(float)});
  return {};
}

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::launch(const Problem& p, ConstBuffer, Buffer workspace,
                                                 Stream stream) {
  using Reduction = ReductionKernel<typename ElementOf<kOut>::Type>;
  MLA_TRY(can_run(p));
  if (p.num_tokens == 0) return {};
  MLA_TRY(
      check_present({{"o", p.o, p.num_states}, {"lse", p.lse, p.num_states}, {"out", p.out, 1}}));
  const cuda::DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  const cudaStream_t on = cuda::cuda_stream(stream);
  const unsigned tokens = static_cast<unsigned>(p.num_tokens);
  if (p.num_states > 1) {
    int32_t* const counts = static_cast<int32_t*>(workspace.data);
    float* const lse = reinterpret_cast<float*>(counts + p.num_tokens);
    merge_states::prepare<kIn, kOut>
        <<<dim3(static_cast<unsigned>(p.num_states), tokens), merge_states::kThreads, 0, on>>>(
            p, counts, lse);
    typename Reduction::Arguments arguments;
    arguments.ptr_oaccum = static_cast<float*>(p.o);
    arguments.ptr_o = static_cast<typename ElementOf<kOut>::Type*>(p.out);
    arguments.ptr_lseaccum = lse;
    arguments.ptr_lse = static_cast<float*>(p.out_lse);
    arguments.num_batches = static_cast<int>(p.num_tokens);
    arguments.split_kv = static_cast<int>(p.num_states);
    // A tile of one token makes a count both the length and the number of parts.
    arguments.ptr_seq = counts;
    arguments.ptr_split_kv = counts;
    arguments.tile_shape_s = 1;
    cutlass::device_kernel<Reduction>
        <<<Reduction::get_grid_shape(arguments), Reduction::get_block_shape(), 0, on>>>(arguments);
  }
  merge_states::complete_rows<kIn, kOut>
      <<<dim3(kHeads, tokens), merge_states::kThreads, 0, on>>>(p);
  return cuda::check(cudaGetLastError(), "launch of the reduction");
}

}  // namespace mla::sm100
