// Copies the queries of a work tile, as they are in memory, with asynchronous copies.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// `kQueryWarps` warps call this, each of which copies a part of the rows.
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

  // The first work tile is of `first_request`, so that its queries need not wait for the scheduler.
  __device__ void run(int32_t first_request) const {
    copy(queries_of(first_request), shared.q[0]);
    uint32_t index = 0;
    for (WorkTile work; consume_work_tile(shared.work_tiles, work, index); ++index) {
      const PipelineState<kStages> state(index);
      Barrier& full = shared.query_full[state.stage];
      shared.query_empty[state.stage].wait(state.phase ^ 1);
      if (index > 0 && work.first_block < work.end_block) {
        copy({work.query, work.query_rows}, shared.q[state.stage]);
      }
      cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<const uint64_t*>(&full));
      if (warp == 0) tell(work, index);
      full.arrive();
    }
    cute::cp_async_wait<0>();  // without a work tile, nobody else does
  }

 private:
  // A warp calls this.
  __device__ __forceinline__ void tell(const WorkTile& work, uint32_t index) const {
    static_assert(kRows <= kWarp);
    QueryFacts<kRows>& facts = shared.query_facts[index % Shared::kFactStages];
    const int row = threadIdx.x % kWarp;
    const int limit = row < kRows ? this->limit(work, row) : work.tokens;
    if (row < kRows) facts.limits[row] = limit;
    const int least = __reduce_min_sync(~0u, limit);
    if (row == 0) {
      facts.least_limit = least;
      facts.work = work;
      facts.index = index;
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

  struct Queries {
    int first;  // query token
    int rows;
  };

  __device__ __forceinline__ Queries queries_of(int32_t request) const {
    if (request >= params.shape.batch) return {0, 0};
    const QueryTokens query = params.query_tokens(request);
    return {query.first, query.count * params.shape.num_heads};
  }

  // Copies rows. Those that do not exist become zeros. A lane copies a vector of each chunk of a
  // row, so that it looks for few rows.
  __device__ __forceinline__ void copy(const Queries& queries, Chunks& q) const {
    constexpr int kVectors = kChunkVectors<uint16_t>;
    constexpr int kAtOnce = kWarp / kVectors;  // rows
    const int lane = threadIdx.x % kWarp;
    const int column = lane % kVectors * kVectorElements<uint16_t>;
#pragma unroll 1
    for (int r = warp * kAtOnce + lane / kVectors; r < kRows; r += kQueryWarps * kAtOnce) {
      const bool exists = r < queries.rows;
      const int s = exists ? params.shape.token_of(r) : 0;
      const int h = exists ? params.shape.head_of(r) : 0;
      const auto* const latent =
          params.query.latent.template at<const uint16_t>(queries.first, s, h) + column;
      const auto* const rope =
          params.query.rope.template at<const uint16_t>(queries.first, s, h) + column;
      Element* const to = q[0] + r * kChunk + column_in_chunk(r, column);
#pragma unroll
      for (int chunk = 0; chunk < kQueryChunks; ++chunk) {
        const bool is_rope = Format::kHasRope && chunk == Format::kQueryRopeChunk;
        copy_vector(is_rope ? rope : latent + chunk * kChunk, to + chunk * kRows * kChunk, exists);
      }
    }
  }

  // Where a column is in its chunk: where the tensor cores read it, unless consumers convert rows.
  static __device__ __forceinline__ int column_in_chunk(int row, int column) {
    return Format::kConvertsQuery ? column : column ^ row % 8 * 8;
  }

  __device__ __forceinline__ void copy_vector(const uint16_t* from, Element* to,
                                              bool exists) const {
    if (params.query.is_aligned_to_16) {
      cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(*reinterpret_cast<const uint4*>(from),
                                                         *reinterpret_cast<uint4*>(to), exists);
    } else {
#pragma unroll 1
      for (int i = 0; i < kVectorElements<uint16_t>; ++i) {
        reinterpret_cast<uint16_t*>(to)[i] = exists ? from[i] : 0;
      }
    }
  }
};

}  // namespace mla::sm90::swap_ab
