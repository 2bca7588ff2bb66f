// Loads tiles of KV row by row with asynchronous copies: tokens may lie in pages of any size.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/decode/shared.cuh"

namespace mla::sm90 {

template <class Element>
struct GatherLoader {
  static constexpr int kWarps = 2;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kPiece = sizeof(uint4) / sizeof(Element);
  static constexpr int kChunkPieces = kChunk / kPiece;
  static constexpr int kRounds = kTileTokens / kWarp;
  static_assert(kRounds == 2);

  // Every thread, when its copies are done, and the one that tells which tokens exist.
  static constexpr int kLatentArrivals = kThreads;
  static constexpr int kRopeArrivals = kThreads + 1;

  const Params& params;
  SharedMemory<Element>& shared;
  const int rank;
  const int first_row;

  // By `kWarps` warps; `warp` is one of them.
  __device__ void run(int warp) {
    uint32_t tile = 0;
    Item item;
    for (ItemReader items(shared); items.next(item);) {
      if (item.first >= item.end) continue;
      wait_until_empty(shared, tile++);  // the place of Q
      __syncwarp();
      if (threadIdx.x % kWarp == 0) shared.query_wanted.arrive();
      Pages pages = pages_of(item, item.first);
      for (; item.first < item.end; ++item.first) {
        // On their way while this tile is loaded.
        const Pages next = pages_of(item, item.first + 1);
        load(tile++, pages, item.first * kTileTokens, warp);
        pages = next;
      }
    }
  }

 private:
  // Of a lane's share of a tile, every 32nd token; -1: there is no such token.
  struct Pages {
    int32_t of[kRounds];
  };

  // Where the tokens begin; null: there is no such token.
  struct Rows {
    const Element* at[kRounds];
  };

  // Which page of its request a token is in. Unsigned division is the shorter one.
  __device__ uint32_t page_index(int32_t token) const {
    return static_cast<uint32_t>(token) / static_cast<uint32_t>(params.kv.page_size);
  }

  __device__ Pages pages_of(const Item& item, int32_t block) const {
    const KvView& kv = params.kv;
    Pages pages;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int32_t token = block * kTileTokens + i * kWarp + threadIdx.x % kWarp;
      pages.of[i] = -1;
      if (token < item.tokens) {
        pages.of[i] = kv.table == nullptr
                          ? item.request
                          : __ldg(kv.table + item.request * kv.table_stride + page_index(token));
      }
    }
    return pages;
  }

  __device__ Rows rows_of(const Pages& pages, int32_t first_token, const void* data,
                          int64_t stride_page, int64_t stride_token) const {
    Rows rows;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int32_t token = first_token + i * kWarp + threadIdx.x % kWarp;
      const int32_t page = pages.of[i];
      const int32_t offset = token - page_index(token) * params.kv.page_size;
      rows.at[i] =
          static_cast<uint32_t>(page) < static_cast<uint32_t>(params.kv.num_pages)
              ? static_cast<const Element*>(data) + page * stride_page + offset * stride_token
              : nullptr;
    }
    return rows;
  }

  __device__ void load(uint32_t tile, const Pages& pages, int32_t first_token, int warp) {
    const KvView& kv = params.kv;
    const Rows latent =
        rows_of(pages, first_token, kv.latent, kv.latent_stride_page, kv.latent_stride_token);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const Place<kHalfSlots> place = half_place(tile, half);
      shared.latent_empty[place.slot].wait(place.phase ^ 1);
      copy_chunks<kHalfChunks>(latent, half * kHalf, shared.latent[place.slot], warp);
      arrive(shared.latent_full[place.slot]);
    }
    const Rows rope =
        rows_of(pages, first_token, kv.rope, kv.rope_stride_page, kv.rope_stride_token);
    const Place<kRopeSlots> place(tile);
    shared.rope_empty[place.slot].wait(place.phase ^ 1);
    const uint64_t low = __ballot_sync(~0u, rope.at[0] != nullptr);
    const uint64_t high = __ballot_sync(~0u, rope.at[1] != nullptr);
    if (warp == 0 && threadIdx.x % kWarp == 0) {
      shared.present[place.slot] = high << kWarp | low;
      shared.rope_full[place.slot].arrive();
    }
    copy_chunks<1>(rope, 0, shared.rope[place.slot], warp);
    arrive(shared.rope_full[place.slot]);
  }

  // Some chunks of every row: as many rows at a time as a warp has pieces of a chunk. Zeros where
  // there is no such token.
  template <int kCount>
  __device__ void copy_chunks(const Rows& rows, int column, Element* chunks, int warp) const {
    constexpr int kAtOnce = kWarp / kChunkPieces;
    const int lane = threadIdx.x % kWarp;
    const int piece = lane % kChunkPieces;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
#pragma unroll 1
      for (int first = warp * kAtOnce; first < kWarp; first += kWarps * kAtOnce) {
        const int r = first + lane / kChunkPieces;
        const auto* const row = reinterpret_cast<const Element*>(
            __shfl_sync(~0u, reinterpret_cast<unsigned long long>(rows.at[i]), r));
        const bool is_there = row != nullptr;
        const Element* const from = is_there ? row + column + piece * kPiece
                                             : static_cast<const Element*>(params.kv.latent);
        Element* const to = chunks + (i * kWarp + r) * kChunk + (piece ^ r % kChunkPieces) * kPiece;
#pragma unroll
        for (int c = 0; c < kCount; ++c) {
          cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(
              reinterpret_cast<const uint4*>(from)[c * kChunkPieces],
              *reinterpret_cast<uint4*>(to + c * kChunkElements), is_there);
        }
      }
    }
  }

  static __device__ void arrive(FullBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<const uint64_t*>(&full));
  }
};

}  // namespace mla::sm90
