// What consumers do with the queries of a work tile before the tensor cores read them: they convert
// bf16 to fp16, if the cache is not of 16 bits, or change signs.
//
// A thread of the tensor cores' operand K reads four neighbouring columns of e4m3, of which it
// multiplies two in each of two steps. The columns of Q are in that order then: of every sixteen,
// 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15.
#pragma once

#include <cfloat>

#include "sm90/mainloop/fp16_row_scale.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// All threads of all consumers use this: a warp changes rows where they are.
template <class Format, int kRows, class Params>
struct QueryOperand {
  using Element = typename Format::QueryElement;
  static constexpr int kQueryChunks = Format::kQueryChunks;
  using Chunks = Element[kQueryChunks][kRows * kChunk];
  static constexpr int kWarps = kConsumers * sm90::kWarps;
  static constexpr int kWarpRows = kRows / kWarps;
  static_assert(kRows % kWarps == 0);

  const Params& params;

  // `q` is as it was in memory; `scales` will be those of logits, if rows are converted.
  __device__ __forceinline__ void prepare(Chunks& q, float* scales) const {
    if constexpr (Format::kConvertsQuery) {
      convert(q, scales);
    } else if (params.sign_flip != 0) {
      flip(q);
    } else {
      return cutlass::arch::fence_view_async_shared();  // other threads have copied rows
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kConsumers * kWarpgroup, kAllConsumers);
  }

 private:
  static constexpr int kAtOnce = 2;  // rows that a warp converts, as there are few registers
  static_assert(kWarpRows % kAtOnce == 0);
  static constexpr int kRowPairs = kChunk / 2;

  static __device__ __forceinline__ int row(int i) {
    return static_cast<int>(threadIdx.x) / kWarp + i * kWarps;
  }
  template <class Chunk>
  static __device__ __forceinline__ auto* pairs_of(Chunk& chunk, int row) {
    return reinterpret_cast<uint32_t*>(chunk) + row * kRowPairs;
  }

  // Changes the signs of rows.
  __device__ __forceinline__ void flip(Chunks& q) const {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
#pragma unroll
      for (auto& chunk : q) pairs_of(chunk, row(i))[threadIdx.x % kWarp] ^= params.sign_flip;
    }
  }

  __device__ __forceinline__ void convert(Chunks& q, float* scales) const {
#pragma unroll 1
    for (int first = 0; first < kWarpRows; first += kAtOnce) convert(first, q, scales);
  }

  // Converts rows. A lane has a pair of each chunk of them.
  __device__ __forceinline__ void convert(int first, Chunks& q, float* scales) const {
    const int lane = threadIdx.x % kWarp;
    const int pair = lane / 8 * 8 + lane % 8 / 2 + lane % 2 * 4;
    uint32_t pairs[kAtOnce][kQueryChunks];
    Fp16RowScale row_scales[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      uint32_t greatest = 0;
#pragma unroll
      for (int chunk = 0; chunk < kQueryChunks; ++chunk) {
        pairs[i][chunk] = pairs_of(q[chunk], row(first + i))[lane];
        raise_abs_max(greatest, pairs[i][chunk]);
      }
      row_scales[i] = Fp16RowScale(__reduce_max_sync(~0u, greater_of_pair(greatest)));
    }
    __syncwarp();  // all lanes have read what is overwritten
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float factor = row_scales[i].factor();
      const auto at = [first, i](int pair) {
        return (pair / 4 ^ row(first + i) % 8) * 4 + pair % 4;
      };
#pragma unroll
      for (int chunk = 0; chunk < kQueryChunks; ++chunk) {
        uint32_t* const to = pairs_of(q[chunk], row(first + i));
        if (!Format::kConvertsRope && Format::kHasRope && chunk == Format::kQueryRopeChunk) {
          to[at(lane)] = scaled_pair(pairs[i][chunk], factor) ^ params.sign_flip;
        } else {
          to[at(pair)] = Fp16RowScale::to_fp16(pairs[i][chunk], factor) ^ params.sign_flip;
        }
      }
      // The scale is never 0, so that a masked logit stays -inf.
      scales[row(first + i)] = fmaxf(params.logit_scale * row_scales[i].inverse(), FLT_MIN);
    }
  }

  // A pair of bf16 times a power of 2.
  static __device__ __forceinline__ uint32_t scaled_pair(uint32_t pair, float factor) {
    return pack_pair<cutlass::bfloat16_t>(__uint_as_float(pair << 16) * factor,
                                          __uint_as_float(pair & 0xffff0000u) * factor);
  }
};

}  // namespace mla::sm90::swap_ab
