#pragma once

#include <cstddef>

#include "cuda/launch.h"
#include "cuda/merge_states/merge_states.h"
#include "cuda/merge_states/weights.cuh"
#include "cuda/pack.cuh"

namespace mla::cuda {
namespace merge_states {

using Problem = mla_merge_states_problem;

// A row's states are summed in eight strands, every eighth pair of states in each, and then the
// strands are summed in order, so that the result does not depend on who sums. Where rows are many,
// a warp sums kRowColumns of one. Where they are few, each warp of a block sums a strand, and each
// lane one vector of columns.
inline constexpr int kStrands = kWarps;
inline constexpr int kPair = 2;
inline constexpr int kRowColumns = 512;

__device__ __forceinline__ int state_of(int strand, int i) {
  return (i / kPair * kStrands + strand) * kPair + i % kPair;
}

template <DType kIn, bool kVectors, int kRowWarps>
struct Shape {
  static constexpr int kColumns = kVector / kElementBytes<kIn>;  // in a vector
  static constexpr int kTile = kColumns * kWarp;
  static constexpr int kTiles = kRowWarps == 1 ? kRowColumns / kTile : 1;
  static constexpr int kBatch = kRowWarps == 1 ? kPair : 8;  // states whose loads are in flight
  static constexpr int kMinBlocks = kVectors ? (kTiles == 2 ? 3 : 2) : 1;  // of a multiprocessor
  using Sums = float[kTiles][kColumns];
};

// A lane's columns in one tile are neighbours, which make one vector, or every 32nd.
template <int kColumns, bool kVectors>
struct Columns {
  int first;  // of the tile
  int count;  // of the row
  int lane;

  __device__ __forceinline__ int column(int i) const {
    return first + (kVectors ? lane * kColumns + i : i * kWarp + lane);
  }

  // Beyond the row's end it loads the first columns again, because loads without conditions
  // overlap.
  template <int kBytes>
  __device__ __forceinline__ Raw<kColumns * kBytes> load(const std::byte* row) const {
    Raw<kColumns * kBytes> raw;
    if constexpr (kVectors) {
      const int from = column(0) < count ? column(0) : 0;
      raw = cuda::load<decltype(raw), kVector>(row + int64_t{from} * kBytes);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int from = column(i) < count ? column(i) : 0;
        set_part(raw, i, cuda::load<Raw<kBytes>, kBytes>(row + int64_t{from} * kBytes));
      }
    }
    return raw;
  }

  template <int kBytes>
  __device__ __forceinline__ void store(std::byte* row, const Raw<kColumns * kBytes>& raw) const {
    if constexpr (kVectors) {
      if (column(0) < count) cuda::store<kVector>(row + int64_t{column(0)} * kBytes, raw);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (column(i) >= count) continue;
        cuda::store<kBytes>(row + int64_t{column(i)} * kBytes, part<Raw<kBytes>>(raw, i));
      }
    }
  }
};

template <DType kIn, bool kVectors, int kRowWarps, class Lse>
struct RowStates : Shape<kIn, kVectors, kRowWarps> {
  using Base = Shape<kIn, kVectors, kRowWarps>;
  using typename Base::Sums;
  static constexpr int kColumns = Base::kColumns;
  static constexpr int kTiles = Base::kTiles;
  static constexpr int kBatch = Base::kBatch;
  static constexpr int kBytes = kElementBytes<kIn>;

  const std::byte* o;  // of the first state
  int64_t stride;      // bytes from state to state
  Lse lse;
  MergedLse merged;
  int first;  // column
  int head_dim;
  int lane;

  __device__ __forceinline__ Columns<kColumns, kVectors> columns(int tile) const {
    return {first + tile * Base::kTile, head_dim, lane};
  }

  __device__ __forceinline__ bool has(int strand) const { return state_of(strand, 0) < lse.count; }

  // One state is copied. If its LSE is NaN, so is the output, as it is of several states.
  __device__ __forceinline__ void copy_first(Sums& sums) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      to_fp32<kIn>(columns(tile).template load<kBytes>(o), sums[tile]);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (isnan(merged.shift)) sums[tile][c] = NAN;
      }
    }
  }

  __device__ __forceinline__ void add_strand(int strand, Sums& sums) const {
    for (int base = 0; state_of(strand, base) < lse.count; base += kWarp) {
      const float weight = weight_of(lse, merged, state_of(strand, base + lane));
#pragma unroll 1
      for (int i = 0; i < kWarp && state_of(strand, base + i) < lse.count; i += kBatch) {
        add_batch(strand, base, i, weight, sums);
      }
    }
  }

  // In place of a state that has no weight, the first one is loaded and not used.
  __device__ __forceinline__ void add_batch(int strand, int base, int batch, float weight,
                                            Sums& sums) const {
    float weights[kBatch];
    Raw<kVector> raw[kBatch][kTiles];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      weights[i] = __shfl_sync(~0u, weight, batch + i);
      const int state = is_absent(weights[i]) ? 0 : state_of(strand, base + batch + i);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        raw[i][tile] = columns(tile).template load<kBytes>(o + state * stride);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (is_absent(weights[i])) continue;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float values[kColumns];
        to_fp32<kIn>(raw[i][tile], values);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          sums[tile][c] = fmaf(weights[i], values[c], sums[tile][c]);
        }
      }
    }
  }

  // Sums all strands, one after the other.
  __device__ __forceinline__ void sum_alone(Sums& sums) const {
#pragma unroll 1
    for (int strand = 0; strand < kStrands && has(strand); ++strand) {
      Sums part = {};
      add_strand(strand, part);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums[tile][c] += part[tile][c];
      }
    }
  }

  // Each warp of the block sums its strand; the first warp gets the sum of all.
  __device__ __forceinline__ void sum_together(int strand, Sums& sums) const {
    __shared__ float parts[kStrands][kColumns][kWarp];
    Sums own = {};
    if (has(strand)) add_strand(strand, own);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) parts[strand][c][lane] = own[0][c];
    __syncthreads();
    if (strand == 0) {
      for (int i = 0; i < kStrands && has(i); ++i) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums[0][c] += parts[i][c][lane];
      }
    }
    __syncthreads();
  }
};

// `turn` numbers the warps of a row.
template <DType kIn, DType kOut, bool kVectors, int kRowWarps, class Lse>
__device__ __forceinline__ void merge_row(const Problem& p, unsigned t, unsigned h, int turn,
                                          int lane) {
  using States = RowStates<kIn, kVectors, kRowWarps, Lse>;
  int count = static_cast<int>(p.num_states);
  if (p.counts != nullptr) {
    const int given = static_cast<const int32_t*>(p.counts)[t * p.counts_stride_t];
    count = min(max(given, 0), count);
  }
  const Lse lse = {static_cast<const float*>(p.lse) + t * p.lse_stride_t + h * p.lse_stride_h,
                   p.lse_stride_n, count};
  const MergedLse merged = merge_lse(lse, lane);
  if (p.out_lse != nullptr && blockIdx.y == 0 && turn == 0 && lane == 0) {
    static_cast<float*>(p.out_lse)[t * p.out_lse_stride_t + h * p.out_lse_stride_h] = merged.value;
  }
  const std::byte* const o = static_cast<const std::byte*>(p.o) +
                             (t * p.o_stride_t + h * p.o_stride_h) * kElementBytes<kIn>;
  std::byte* const out = static_cast<std::byte*>(p.out) +
                         (t * p.out_stride_t + h * p.out_stride_h) * kElementBytes<kOut>;
  constexpr int kWidth = States::kTiles * States::kTile;
  const int head_dim = static_cast<int>(p.head_dim);
  for (int first = blockIdx.y * kWidth; first < head_dim; first += gridDim.y * kWidth) {
    const States states = {{},       o,   p.o_stride_n * kElementBytes<kIn>, lse, merged, first,
                           head_dim, lane};
    typename States::Sums sums = {};
    if (count == 1) {
      if (merged.shift != -INFINITY) states.copy_first(sums);
    } else if constexpr (kRowWarps == 1) {
      states.sum_alone(sums);
    } else {
      states.sum_together(turn, sums);
    }
    if (turn > 0) continue;
#pragma unroll
    for (int tile = 0; tile < States::kTiles; ++tile) {
      states.columns(tile).template store<kElementBytes<kOut>>(out, from_fp32<kOut>(sums[tile]));
    }
  }
}

template <DType kIn, DType kOut, bool kVectors, int kRowWarps>
__global__ void __launch_bounds__(kThreads, Shape<kIn, kVectors, kRowWarps>::kMinBlocks)
    merge_kernel(const __grid_constant__ Problem p) {
  constexpr int kRows = kWarps / kRowWarps;  // of a block
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const unsigned row = blockIdx.x * kRows + warp / kRowWarps;
  const unsigned heads = static_cast<unsigned>(p.num_heads);
  if (row >= heads * static_cast<unsigned>(p.num_tokens)) return;
  merge_row<kIn, kOut, kVectors, kRowWarps, ForeignStateLse>(p, row / heads, row % heads,
                                                             warp % kRowWarps, lane);
}

template <DType kIn, DType kOut>
bool has_vectors(const Problem& p) {
  constexpr int64_t kColumns = kVector / kElementBytes<kIn>;
  bool result = is_aligned(p.o, kVector) && is_aligned(p.out, kColumns * kElementBytes<kOut>);
  for (const int64_t extent :
       {p.head_dim, p.o_stride_n, p.o_stride_t, p.o_stride_h, p.out_stride_t, p.out_stride_h}) {
    result &= is_multiple(extent, kColumns);
  }
  return result;
}

// Says whether one warp a row would leave much of the device without work. All warps of a block
// compute the weights of all states of their row, which pays for many states or very few rows.
inline Status are_rows_few(const Problem& p, int64_t rows, bool* few) {
  const int64_t warps_per_sm = p.num_states < 64 ? 4 : 16;
  int sms = 0;
  MLA_TRY(sm_count(p.device, &sms));
  *few = p.num_states > 1 && rows < sms * warps_per_sm;
  return {};
}

template <DType kIn, DType kOut, bool kVectors, int kRowWarps>
void launch(const Problem& p, int64_t rows, cudaStream_t stream) {
  using Shape = Shape<kIn, kVectors, kRowWarps>;
  constexpr int64_t kLargestGridY = 65535;
  // A head without columns still has an LSE.
  const int64_t tiles =
      std::max<int64_t>(1, p.head_dim / (Shape::kTiles * Shape::kTile) +
                               (p.head_dim % (Shape::kTiles * Shape::kTile) != 0));
  const dim3 grid(blocks_for(rows, kWarps / kRowWarps),
                  static_cast<unsigned>(std::min(tiles, kLargestGridY)));
  merge_kernel<kIn, kOut, kVectors, kRowWarps><<<grid, kThreads, 0, stream>>>(p);
}

}  // namespace merge_states

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::can_run(const Problem& p) {
  MLA_TRY(check_extents({{"num_states", p.num_states},
                         {"num_tokens", p.num_tokens},
                         {"num_heads", p.num_heads},
                         {"head_dim", p.head_dim}}));
  const int64_t rows = saturating_product({p.num_tokens, p.num_heads});
  constexpr int64_t kMost = int64_t{1} << 30;  // the kernel counts in 32 bits
  for (const Extent& extent : {Extent{"num_states", p.num_states},
                               {"num_tokens x num_heads", rows},
                               {"head_dim", p.head_dim}}) {
    if (extent.value > kMost) {
      return Status::error(MLA_RANGE, extent.name, text(extent.value), text("up to ", kMost));
    }
  }
  const int64_t states = saturating_product({p.num_states, rows});
  MLA_TRY(check_present({{"o", p.o, saturating_product({states, p.head_dim})},
                         {"lse", p.lse, states},
                         {"out", p.out, saturating_product({rows, p.head_dim})}}));
  return check_aligned({{"o", p.o, kElementBytes<kIn>},
                        {"lse", p.lse, sizeof(float)},
                        {"counts", p.counts, sizeof(int32_t)},
                        {"out", p.out, kElementBytes<kOut>},
                        {"out_lse", p.out_lse, sizeof(float)}});
}

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::prepare(int32_t device) {
  using merge_states::merge_kernel;
  return load_kernels(device,
                      {reinterpret_cast<const void*>(merge_kernel<kIn, kOut, true, 1>),
                       reinterpret_cast<const void*>(merge_kernel<kIn, kOut, false, 1>),
                       reinterpret_cast<const void*>(merge_kernel<kIn, kOut, true, kWarps>),
                       reinterpret_cast<const void*>(merge_kernel<kIn, kOut, false, kWarps>)});
}

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::launch(const Problem& p, ConstBuffer, Buffer,
                                                 Stream stream) {
  MLA_TRY(can_run(p));
  const int64_t rows = saturating_product({p.num_tokens, p.num_heads});
  if (rows == 0) return {};
  const DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  bool few = false;
  MLA_TRY(merge_states::are_rows_few(p, rows, &few));
  using merge_states::launch;
  const auto function =
      merge_states::has_vectors<kIn, kOut>(p)
          ? (few ? launch<kIn, kOut, true, kWarps> : launch<kIn, kOut, true, 1>)
          : (few ? launch<kIn, kOut, false, kWarps> : launch<kIn, kOut, false, 1>);
  function(p, rows, cuda_stream(stream));
  return check(cudaGetLastError(), "merge_states");
}

}  // namespace mla::cuda
