// Loads the query rows of a tile into the KV pipelines, as if they were a work tile's first tile of
// KV: as boxes by TMA, or row by row.
#pragma once

#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/copy_rows.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90::rows_m64 {

// `Producer` is what fills the pipelines with KV. Their barriers count the arrivals that it makes,
// so Q makes as many; its kQueryWaiters warps wait for the stages that Q takes.
template <class Format, class Producer, class Params>
struct QueryProducer {
  using Element = typename Format::Element;
  static constexpr uint32_t kChunkBytes = kChunkElements * sizeof(Element);

  const Params& params;
  SharedStorage<Format>& shared;
  const int first_row;

  // The warps that fill the pipelines call this. Only they know when a stage is empty: a warp that
  // does not wait for every use of a stage cannot tell one use from another.
  __device__ void begin(uint32_t tile, const WorkTile& work, int warp) const {
    producer_acquire(shared, tile);
    // A warp that waited after Q has come and gone could not tell either, so the warps meet first.
    if constexpr (Producer::kQueryWaiters > 1) {
      cutlass::arch::NamedBarrier::sync(Producer::kQueryWaiters * kWarp, kQueryBarrier);
    }
    __syncwarp();
    if (warp == 0) start(tile, work);
  }

  // One warp calls this, of the first queries of a block too: their stages have not been used.
  __device__ void start(uint32_t tile, const WorkTile& work) const {
    if (params.query.by_tma) {
      if (cute::elect_one_sync()) copy_boxes(tile, work.query);
    } else if constexpr (Format::kDequantizes) {
      copy(tile, work);
    } else {
      if (cute::elect_one_sync()) shared.query_wanted[rope_state<Format>(tile).stage].arrive();
    }
    __syncwarp();
  }

  // A warp of its own calls this. Of queries that are boxes, it asks for the first one, if that is
  // early, and the warp that loads KV for the others.
  __device__ void run(const TileScheduler<Params>& scheduler) const {
    if (!params.query.by_tma) {
      copy_all();
    } else if (is_query_early<Format>(params, true) && scheduler.has_next() &&
               cute::elect_one_sync()) {
      copy_boxes(0, params.query_tokens(scheduler.at().request).first);
    }
  }

 private:
  // Copies the queries that are not boxes. Several may be wanted before the warp looks, where short
  // work tiles follow each other: each at another stage.
  __device__ void copy_all() const {
    uint32_t tile = 0;
    uint32_t phases = 0;  // a bit for each stage
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared.work_tiles); work_tiles.next(work);) {
      if (work.first_block >= work.end_block) continue;
      const uint32_t stage = rope_state<Format>(tile).stage;
      shared.query_wanted[stage].wait(phases >> stage & 1);
      phases ^= 1u << stage;
      copy(tile, work);
      tile += 1 + work.end_block - work.first_block;
    }
  }

  // One thread calls this.
  __device__ void copy_boxes(uint32_t tile, int32_t query) const {
    int32_t row = first_row;
    asm volatile("" : "+r"(row));  // or the compiler keeps the row's token in a register
    const int32_t token = params.query.map_heads.quotient(row);
    const int32_t h = params.query.map_heads.remainder(row, token);
    const QueryCoordinates at = params.query.coordinates(query, token);
#pragma unroll 1
    for (int half = 0; half < Format::kHalves; ++half) {
      const auto latent = latent_state<Format>(tile, half);
      TransactionBarrier& full = shared.latent_full[latent.stage];
      full.expect_transaction(kHalfChunks * kChunkBytes);
#pragma unroll 1
      for (int i = 0; i < kHalfChunks; ++i) {
        const int chunk = half * kHalfChunks + i;
        const bool of_rope = chunk >= Format::kQueryLatentChunks;
        copy_box(of_rope ? &params.query.rope_map : &params.query.latent_map, full,
                 shared.latent[latent.stage] + i * kChunkElements, of_rope ? 0 : chunk * kChunk, h,
                 at.s, at.b);
      }
    }
    if constexpr (Format::kHasKeyChunk) {
      const auto rope = rope_state<Format>(tile);
      TransactionBarrier& full = shared.rope_full[rope.stage];
      full.expect_transaction(kChunkBytes);
      copy_box(&params.query.rope_map, full, shared.rope[rope.stage], 0, h, at.s, at.b);
    }
    arrive<1>(tile);
  }

  // A warp calls this. Rows beyond the last are copies of it; their results are not stored.
  __device__ void copy(uint32_t tile, const WorkTile& work) const {
#pragma unroll 1
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
      const bool of_rope = chunk >= Format::kQueryLatentChunks;
      Element* const to =
          Format::kHasKeyChunk && chunk == Format::kKeyChunk
              ? shared.rope[rope_state<Format>(tile).stage]
              : shared.latent[latent_state<Format>(tile, chunk / kHalfChunks).stage] +
                    chunk % kHalfChunks * kChunkElements;
#pragma unroll 1
      for (int row = 0; row < kTileRows; row += kWarp) {
        const int own = row + threadIdx.x % kWarp;
        const int r = min(first_row + own, query_rows(params, work) - 1);
        const auto& rows = of_rope ? params.query.rope : params.query.latent;
        const auto* const from =
            rows.template at<const Element>(work.query, params.shape.token_of(r),
                                            params.shape.head_of(r)) +
            (of_rope ? 0 : chunk * kChunk);
        if (params.query.is_aligned_to_16) {
          copy_rows<1>(from, ~0u, to, row, read_thread_index() % kWarp);
        } else {
          copy_elements(from, to, own);
        }
      }
    }
    cute::cp_async_wait<0>();
    if constexpr (Producer::kRopeArrivals % kWarp == 0) {
      arrive<kWarp>(tile);
    } else {
      __syncwarp();
      if (read_lane_index() == 0) arrive<1>(tile);
    }
  }

  static __device__ void copy_box(const CUtensorMap* map, TransactionBarrier& full, Element* to,
                                  int32_t column, int32_t h, int32_t s, int32_t b) {
    cute::SM90_TMA_LOAD_4D::copy(map, reinterpret_cast<uint64_t*>(&full),
                                 static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST), to,
                                 column, h, s, b);
  }

  // `kLanes` lanes arrive, together as often as the producer of KV does.
  template <int kLanes>
  __device__ void arrive(uint32_t tile) const {
    static_assert(Producer::kLatentArrivals % kLanes == 0 && Producer::kRopeArrivals % kLanes == 0);
    for (int half = 0; half < Format::kHalves; ++half) {
      arrive_n(shared.latent_full[latent_state<Format>(tile, half).stage],
               Producer::kLatentArrivals / kLanes);
    }
    arrive_n(shared.rope_full[rope_state<Format>(tile).stage], Producer::kRopeArrivals / kLanes);
  }

  // Copies one row of a chunk that is not aligned.
  __device__ void copy_elements(const Element* own, Element* chunk, int row) const {
    const auto* const from = reinterpret_cast<const uint16_t*>(own);
#pragma unroll 1
    for (int i = 0; i < kChunk; i += 2) {
      *reinterpret_cast<uint32_t*>(chunk + row * kChunk + (i ^ row % 8 * 8)) =
          from[i] | static_cast<uint32_t>(from[i + 1]) << 16;
    }
  }
};

}  // namespace mla::sm90::rows_m64
