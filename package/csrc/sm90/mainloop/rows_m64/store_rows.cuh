// Where a work tile ends that is a whole request: a warpgroup of the output stores its columns of
// the result.
#pragma once

#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90::rows_m64 {

template <class Format, class Out, class Accumulator, class Params>
struct StoreRows {
  using Element = typename Format::Element;
  static constexpr int kVectors = kChunkVectors<Element>;
  static constexpr int kAtomVectors = kSwizzleRows * kVectors;
  static constexpr int kRowVectors = kPvColumns / kVectorElements<Element>;
  static constexpr int kWarpRows = 16;
  static constexpr int kRowsAtOnce = kWarp / kRowVectors;
  // Pairs of neighbours in a row that a thread has of a half.
  static constexpr int kPairs = kPvColumns / 8;
  static constexpr int kHalves = Format::kHalves;
  using Vector = uint4;
  using Rows = float[kThreadRows];

  const Params& params;
  const SharedStorage<Format>& shared;
  Accumulator (&out)[Format::kHalves];

  // Stores rows of the result. They go through `halves`, the memory of the last tile's latent, of
  // which this warpgroup alone has read these columns, so that a lane stores 16 bytes of a row.
  // `release` says that the tile is no longer needed.
  template <class Release>
  __device__ __forceinline__ void run(const WorkTile& work, const Rows& scale,
                                      Vector* const (&halves)[kHalves],
                                      const Release& release) const {
    const int rows = params.query_rows(work.request);
    const bool exists = shared.tile_row_of_request() + warp_row() < rows;
    if (exists) {
      clear_rows_without_p(scale);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) put_half(scale, out[half], halves[half]);
      __syncwarp();
    }
    if (!exists || !params.out_is_aligned_to_16) {
      if (exists) store_elements(work, rows, halves);
      return release();
    }
    Vector own[kHalves][kWarpRows / kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kWarpRows / kRowsAtOnce; ++i) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) own[half][i] = halves[half][vector_at(i)];
    }
    // The fence in it would wait for stores to global memory, so these come later.
    release();
#pragma unroll
    for (int i = 0; i < kWarpRows / kRowsAtOnce; ++i) {
      const int r = shared.tile_row_of_request() + row_at(i);
      if (r >= rows) return;
      auto* const to = reinterpret_cast<Vector*>(out_at(work, r));
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        to[half * (kHalf / kVectorElements<Element>)] = own[half][i];
      }
    }
  }

  // Stores the rows of a request without tokens.
  __device__ __forceinline__ void run_without_tokens(const WorkTile& work) const {
    const int rows = params.query_rows(work.request);
#pragma unroll 1
    for (int i = 0; i < kWarpRows / kRowsAtOnce; ++i) {
      const int r = shared.tile_row_of_request() + row_at(i);
      if (r >= rows) return;
      uint16_t* const to = out_at(work, r);
#pragma unroll
      for (int e = 0; e < kHalves * kVectorElements<Element>; ++e) {
        to[e / kVectorElements<Element> * kHalf + e % kVectorElements<Element>] = 0;
      }
    }
  }

 private:
  // The first of the rows of a tile that a warp has.
  static __device__ __forceinline__ int warp_row() {
    return static_cast<uint32_t>(read_thread_index()) % kWarpgroup / kWarp * kWarpRows;
  }
  // The row of a tile of which a lane stores a vector at the i-th time, and which vector of the
  // warpgroup's columns it stores.
  static __device__ __forceinline__ int row_at(int i) {
    return warp_row() + i * kRowsAtOnce + static_cast<int>(read_lane_index() / kRowVectors);
  }
  static __device__ __forceinline__ int own_vector() { return read_lane_index() % kRowVectors; }

  // Where the warpgroup's columns of a row are in a half, in HalfLayout.
  __device__ __forceinline__ int vectors_of(uint32_t row) const {
    constexpr int kSideChunks = kPvColumns / kChunk;
    return (row / kSwizzleRows * kHalfChunks + side_of_thread() * kSideChunks) * kAtomVectors +
           row % kSwizzleRows * kVectors;
  }
  __device__ __forceinline__ int vector_at(int i) const {
    const uint32_t row = row_at(i);
    const uint32_t vector = own_vector();
    return vectors_of(row) + vector / kVectors * kAtomVectors +
           (vector % kVectors ^ row % kSwizzleRows);
  }

  // Where a lane's vector of the left half of a row is in the output.
  __device__ __forceinline__ uint16_t* out_at(const WorkTile& work, int r) const {
    return params.out.template at<uint16_t>(work.request, params.shape.token_of(r),
                                            params.shape.head_of(r)) +
           side_of_thread() * kPvColumns + own_vector() * kVectorElements<Element>;
  }

  // A row without P is 0, whatever its sum is.
  __device__ __forceinline__ void clear_rows_without_p(const Rows& scale) const {
    if (scale[0] == 0 || scale[1] == 0) {
#pragma unroll
      for (int e = 0; e < cute::size(Accumulator{}); ++e) {
        if (scale[e % 4 / 2] != 0) continue;
#pragma unroll
        for (auto& half : out) half(e) = 0;
      }
    }
    __syncwarp();
  }

  // Puts a half of the accumulators into shared memory, as rows.
  __device__ __forceinline__ void put_half(const Rows& scale, const Accumulator& sums,
                                           Vector* half) const {
    const uint32_t lane = read_lane_index();
    // Each lane names the row and the vector of one of the 32 that an instruction stores.
    Vector* const to = half + vectors_of(warp_row() + lane % kWarpRows);
    const uint32_t first = lane / kWarpRows ^ lane % kSwizzleRows;
    const auto pair = [&](int i) {
      return pack_pair<Out>(sums(i * 2) * scale[i % 2], sums(i * 2 + 1) * scale[i % 2]);
    };
#pragma unroll
    for (int j = 0; j < kPairs; j += 2) {
      cute::SM90_U32x4_STSM_N::copy(pair(j * 2), pair(j * 2 + 1), pair(j * 2 + 2), pair(j * 2 + 3),
                                    reinterpret_cast<cute::uint128_t&>(
                                        to[j / kVectors * kAtomVectors + (first ^ j % kVectors)]));
    }
  }

  // Stores rows that are not aligned to 16 bytes.
  __device__ __forceinline__ void store_elements(const WorkTile& work, int rows,
                                                 Vector* const (&halves)[kHalves]) const {
#pragma unroll 1
    for (int i = 0; i < kWarpRows / kRowsAtOnce; ++i) {
      const int r = shared.tile_row_of_request() + row_at(i);
      if (r >= rows) return;
      uint16_t* const to = out_at(work, r);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const auto* const from = reinterpret_cast<const uint16_t*>(halves[half] + vector_at(i));
#pragma unroll 1
        for (int e = 0; e < kVectorElements<Element>; ++e) to[half * kHalf + e] = from[e];
      }
    }
  }
};

}  // namespace mla::sm90::rows_m64
