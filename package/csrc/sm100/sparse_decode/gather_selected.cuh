// Gathers what each query token selects of one or two caches, dequantised, into rows of its own.
#pragma once

#include "cuda/gather_kv/gather_kv.cuh"
#include "mla/conversions.h"
#include "sm100/cutlass_mla/batch_rows.h"
#include "sm100/cutlass_mla/split_heuristic.h"

namespace mla::sm100::gather_selected {

template <DType kKv, DType kExtra, int kDQk>
struct Selected {
  cuda::CacheRows<kKv, kDQk, kLatent> cache;
  cuda::CacheRows<kExtra, kDQk, kLatent> extra;
  RowArrays arrays;
  cuda::TokenRows out;  // [rows, table_stride]
};

// How many blocks a multiprocessor has at least. Two formats in one kernel spill with the 128
// registers a thread that 8 blocks leave.
template <DType kKv, DType kExtra, int kDQk, bool kVectors>
inline constexpr int kMinBlocks = !kVectors       ? 1
                                  : kKv == kExtra ? cuda::gather_kv::kMinBlocks<kKv, kDQk, kLatent>
                                                  : 6;

// The rows behind the last token of a last tile become zeros, because the kernel loads whole tiles.
template <DType kKv, DType kExtra, DType kOut, int kDQk, bool kVectors>
__global__ void __launch_bounds__(cuda::kRowThreads, kMinBlocks<kKv, kExtra, kDQk, kVectors>)
    gather_kernel(const __grid_constant__ Selected<kKv, kExtra, kDQk> selected) {
  using cuda::gather_kv::gathered;
  constexpr int kAligned = cuda::kAlignment<kOut, kVectors>;
  const RowArrays& arrays = selected.arrays;
  const int64_t row = blockIdx.y;
  const int lane = cuda::row_lane();
  const int32_t tokens = arrays.lengths[row];
  const int32_t of_cache = tokens - arrays.extra_lengths[row];
  const int64_t end = tile_count(tokens) * int64_t{kTileTokens};
  for (int64_t i = cuda::first_row(); i < end; i += cuda::row_step()) {
    const int64_t at = row * arrays.table_stride + i;
    const int64_t slot = arrays.table[at];
    cuda::RowPacks<kOut, kKv, kDQk, kLatent> packs = {};
    std::byte* const latent = selected.out.latent(at);
    std::byte* const rope = selected.out.rope(at);
    if constexpr (kKv == kExtra) {
      if (i < tokens) {
        const auto from = i < of_cache ? selected.cache.at(slot) : selected.extra.at(slot);
        packs = gathered<kKv, kOut, kDQk, kLatent, kVectors>(from, 1, lane);
      }
    } else if (i < of_cache) {
      packs = gathered<kKv, kOut, kDQk, kLatent, kVectors>(selected.cache.at(slot), 1, lane);
    } else if (i < tokens) {
      packs = gathered<kExtra, kOut, kDQk, kLatent, kVectors>(selected.extra.at(slot), 1, lane);
    }
    cuda::store_row<kAligned>(packs, latent, rope, lane);
  }
}

template <DType kKv, DType kExtra, DType kOut, int kDQk>
Status prepare(int32_t device) {
  static cuda::PreparedDevices prepared;
  return prepared.ensure(device, [device]() {
    return cuda::load_kernels(
        device, {reinterpret_cast<const void*>(gather_kernel<kKv, kExtra, kOut, kDQk, true>),
                 reinterpret_cast<const void*>(gather_kernel<kKv, kExtra, kOut, kDQk, false>)});
  });
}

// Gathers into `out`, bf16 rows [rows, table_stride, kDQk].
//
// @pre `prepare_rows` has filled the arrays, earlier on the same stream.
template <DType kKv, DType kExtra, DType kOut, int kDQk>
Status launch(const mla_sparse_decode_problem& problem, int32_t rows, const RowArrays& arrays,
              uint16_t* out, cudaStream_t stream) {
  if (arrays.table == nullptr) return {};  // nothing can be selected
  using Packs = cuda::RowPacks<kOut, kKv, kDQk, kLatent>;
  constexpr int kLatentColumns = kCacheFormat<kKv, kDQk, kLatent>.latent;
  const Selected<kKv, kExtra, kDQk> selected = {
      cuda::CacheRows<kKv, kDQk, kLatent>(problem),
      cuda::CacheRows<kExtra, kDQk, kLatent>(as_extra(problem)), arrays,
      cuda::token_rows<Packs>(out, kDQk, out + kLatentColumns, kDQk)};
  const bool vectors = selected.cache.has_vectors() && selected.extra.has_vectors();
  const auto kernel = vectors ? gather_kernel<kKv, kExtra, kOut, kDQk, true>
                              : gather_kernel<kKv, kExtra, kOut, kDQk, false>;
  const dim3 grid(cuda::blocks_for(arrays.table_stride, cuda::kBlockRows), rows);
  kernel<<<grid, cuda::kRowThreads, 0, stream>>>(selected);
  return cuda::check(cudaGetLastError(), "gathering of the selected rows");
}

}  // namespace mla::sm100::gather_selected
