// Loads the queries of a work tile and, for a cache of e4m3, converts them to fp16.
//
// A thread of the tensor cores' operand K reads four neighbouring columns of e4m3, of which it
// multiplies two in each of two steps. The columns of Q are in that order then: of every sixteen,
// 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15.
#pragma once

#include <cfloat>
#include <cute/arch/copy_sm80.hpp>

#include "sm90/mainloop/fp16_row_scale.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// `kQueryWarps` warps call this, of which each has every second row.
template <class Format, int kRows, class Params>
struct QueryProducer {
  using Element = typename Format::QueryElement;
  using Shared = SharedStorage<Format, kRows>;
  static constexpr int kStages = Shared::kQueryStages;
  static constexpr int kQueryChunks = Format::kQueryChunks;
  using Chunks = Element[kQueryChunks][kRows * kChunk];

  const Params& params;
  Shared& shared;
  const int warp;

  __device__ void run() const {
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared.work_tiles); work_tiles.next(work);) {
      const PipelineState<kStages> state(work_tiles.count() - 1);
      QueryFacts<kRows>& facts = shared.query_facts[work_tiles.count() % Shared::kFactStages];
      shared.query_empty[state.stage].wait(state.phase ^ 1);
      if (warp == 0) tell(work, facts);
      if (work.first_block < work.end_block) load(work, shared.q[state.stage], facts.logit_scale);
      cutlass::arch::fence_view_async_shared();
      shared.query_full[state.stage].arrive();
    }
  }

 private:
  static constexpr int kAtOnce = kRows == 16 ? 4 : 2;  // rows that a warp converts together

  // A warp calls this.
  __device__ __forceinline__ void tell(const WorkTile& work, QueryFacts<kRows>& facts) const {
    static_assert(kRows <= kWarp);
    const int row = threadIdx.x % kWarp;
    const int limit = row < kRows ? this->limit(work, row) : work.tokens;
    if (row < kRows) facts.limits[row] = limit;
    const int least = __reduce_min_sync(~0u, limit);
    if (row == 0) {
      facts.least_limit = least;
      facts.rows = work.query_rows;
    }
  }

  // How many tokens of the request a row sees.
  __device__ __forceinline__ int limit(const WorkTile& work, int row) const {
    if constexpr (Params::kIsSparse) {
      return work.tokens;
    } else {
      return dense_limit(work, row);
    }
  }
  __device__ __forceinline__ int dense_limit(const WorkTile& work, int row) const {
    const int s = params.shape.token_of(row);
    if (params.token_lengths.data != nullptr && row < work.query_rows) {
      return params.seen(work.query, s, work.tokens);
    }
    return params.causal ? work.visible - (params.shape.q_len - 1) + s : work.tokens;
  }

  // Copies all rows as they are first, then changes each in its place.
  __device__ __forceinline__ void load(const WorkTile& work, Chunks& q, float* scales) const {
#pragma unroll 1
    for (int row = warp; row < kRows; row += kQueryWarps) copy(work, row, q);
    cute::cp_async_fence();
    cute::cp_async_wait<0>();
    __syncwarp();
    if constexpr (Format::kConvertsQuery) {
#pragma unroll 1
      for (int row = warp; row < kRows; row += kAtOnce * kQueryWarps) convert(row, q, scales);
    } else if (params.sign_flip != 0) {
#pragma unroll 1
      for (int row = warp; row < kRows; row += kQueryWarps) flip(row, q);
    }
  }

  // Rows that do not exist become zeros.
  __device__ __forceinline__ void copy(const WorkTile& work, int r, Chunks& q) const {
    const int lane = threadIdx.x % kWarp;
    const bool exists = r < work.query_rows;
    const int s = exists ? params.shape.token_of(r) : 0;
    const int h = exists ? params.shape.head_of(r) : 0;
    const auto* const latent = params.query.latent.template at<const uint16_t>(work.query, s, h);
    const auto* const rope = params.query.rope.template at<const uint16_t>(work.query, s, h);
    if (params.query.is_aligned_to_16) {
      constexpr int kVectorElements = sizeof(uint4) / sizeof(Element);
      constexpr int kChunkVectors = kChunk / kVectorElements;
#pragma unroll
      for (int i = lane; i < kQueryChunks * kChunkVectors; i += kWarp) {
        const int chunk = i / kChunkVectors;
        const int column = i % kChunkVectors * kVectorElements;
        const auto* const from = is_rope(chunk) ? rope : latent + chunk * kChunk;
        cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(
            *reinterpret_cast<const uint4*>(from + column),
            *reinterpret_cast<uint4*>(q[chunk] + at(r, column)), exists);
      }
    } else {
#pragma unroll 1
      for (int i = lane; i < kQueryChunks * kChunk; i += kWarp) {
        const uint16_t* const from = is_rope(i / kChunk) ? rope + i % kChunk : latent + i;
        reinterpret_cast<uint16_t*>(q[i / kChunk])[at(r, i % kChunk)] = exists ? *from : 0;
      }
    }
  }

  static constexpr __device__ bool is_rope(int chunk) {
    return Format::kHasRope && chunk == Format::kQueryRopeChunk;
  }

  // Where a column of a row is in its chunk: where the tensor cores read it, unless the row is
  // converted first.
  static __device__ __forceinline__ int at(int row, int column) {
    return row * kChunk + (Format::kConvertsQuery ? column : column ^ row % 8 * 8);
  }

  // Changes the signs of a row.
  __device__ __forceinline__ void flip(int row, Chunks& q) const {
#pragma unroll
    for (int chunk = 0; chunk < kQueryChunks; ++chunk) {
      reinterpret_cast<uint32_t*>(q[chunk])[row * (kChunk / 2) + threadIdx.x % kWarp] ^=
          params.sign_flip;
    }
  }

  // Converts a row and those that the warp has after it, as each of them waits for what is read. A
  // lane has a pair of each chunk.
  __device__ __forceinline__ void convert(int first_row, Chunks& q, float* scales) const {
    const int lane = threadIdx.x % kWarp;
    constexpr int kRowPairs = kChunk / 2;
    const int pair = lane / 8 * 8 + lane % 8 / 2 + lane % 2 * 4;
    uint32_t pairs[kAtOnce][kQueryChunks];
    Fp16RowScale row_scales[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = first_row + i * kQueryWarps;
      uint32_t greatest = 0;
#pragma unroll
      for (int chunk = 0; chunk < kQueryChunks; ++chunk) {
        pairs[i][chunk] = reinterpret_cast<const uint32_t*>(q[chunk])[row * kRowPairs + lane];
        raise_abs_max(greatest, pairs[i][chunk]);
      }
      row_scales[i] = Fp16RowScale(__reduce_max_sync(~0u, greater_of_pair(greatest)));
    }
    __syncwarp();  // all lanes have read what is overwritten
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int row = first_row + i * kQueryWarps;
      const float factor = row_scales[i].factor();
      const auto at = [row](int pair) {
        return row * kRowPairs + (pair / 4 ^ row % 8) * 4 + pair % 4;
      };
#pragma unroll
      for (int chunk = 0; chunk < kQueryChunks; ++chunk) {
        uint32_t* const to = reinterpret_cast<uint32_t*>(q[chunk]);
        if (!Format::kConvertsRope && is_rope(chunk)) {
          to[at(lane)] = scaled_pair(pairs[i][chunk], factor) ^ params.sign_flip;
        } else {
          to[at(pair)] = Fp16RowScale::to_fp16(pairs[i][chunk], factor) ^ params.sign_flip;
        }
      }
      // The scale is never 0, so that a masked logit stays -inf.
      if (lane == 0) {
        scales[row] = fmaxf(params.logit_scale * row_scales[i].inverse(), FLT_MIN);
      }
    }
  }

  // A pair of bf16 times a power of 2.
  static __device__ __forceinline__ uint32_t scaled_pair(uint32_t pair, float factor) {
    return pack_pair<cutlass::bfloat16_t>(__uint_as_float(pair << 16) * factor,
                                          __uint_as_float(pair & 0xffff0000u) * factor);
  }
};

}  // namespace mla::sm90::swap_ab
