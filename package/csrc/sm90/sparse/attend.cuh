// The kernel of sparse attention: of each block, one warpgroup loads the rows that a token selects,
// one weighs them, two sum up the output.
#pragma once

#include <type_traits>

#include "common/traits.h"
#include "sm90/decode/compute/block.cuh"
#include "sm90/decode/compute/load_gather.cuh"
#include "sm90/decode/dependents.cuh"
#include "sm90/sparse/load_rows.cuh"

namespace mla::sm90::sparse {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
__global__ void __launch_bounds__(kThreads, 1)
    attend_selected(const __grid_constant__ SelectedParams params) {
  static_assert(kLoad == Load::gather && kSchedule == Schedule::compute);
  using Format = mla::sm90::Format<kQ, kKv>;
  using Out = typename ElementOf<kOut>::Type;
  using Rows = GatherLoader<Format, SelectedParams>;
  using Filler = std::conditional_t<Format::kWidens, RowWidener, Rows>;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<SharedMemory<Format>*>(memory);
  const int rank = blockIdx.x % params.shape.cluster;
  const int part = blockIdx.x / params.shape.cluster;
  const int first_row = rank * kTileRows;

  // Tensor cores read what threads have copied, if only rope columns.
  constexpr bool kGathers = true;
  const Block<Format, Out, Filler, 1, kGathers, SelectedParams> block = {params, shared, first_row};
  if (threadIdx.x == 0) {
    int loaders = Filler::kWarps;
    if constexpr (Format::kWidens) {
      loaders += SliceLoader::kWarps;
      shared.codes.init_barriers(Filler::kWarps);
    } else if (!params.query.by_tma) {
      loaders += 1;
    }
    block.init_barriers(loaders);
  }
  __syncthreads();
  launch_dependents();
  wait_for_prerequisites();

  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup < 2) {
    block.accumulate(warpgroup);
  } else if (warpgroup == 2) {
    block.weigh();
  } else {
    cutlass::arch::warpgroup_reg_dealloc<block.kFillerRegisters>();
    const int warp = threadIdx.x / kWarp - block.kComputeWarpgroups * kWarps;
    if constexpr (Format::kWidens) {
      if (warp == 0) {
        const StoredWalk walk(params, part, shared.codes.walk);
        SliceLoader{params, shared}.run(ItemSource(shared.items, walk));
      } else {
        Filler{params, shared, first_row}.run(warp - 1);
      }
    } else if (warp == 0) {
      if (cute::elect_one_sync()) {
        ItemWriter items(shared.items, Walk<SelectedParams>(params, part));
        while (items.write()) continue;
      }
    } else if (warp == 1) {
      if (!params.query.by_tma) {
        QueryLoader<Format, Filler, SelectedParams>{params, shared, first_row}.run();
      }
    } else {
      Filler{params, shared, first_row}.run(warp - 2);
    }
    meet(params, shared.splits);
  }
}

}  // namespace mla::sm90::sparse
