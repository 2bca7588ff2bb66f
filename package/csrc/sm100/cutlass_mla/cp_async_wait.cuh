// Includes CUTLASS example 77's MLA kernel with a wait of ours in place of `cp_async_wait`.
//
// The kernel lets its N = stages - 1 youngest loads be on their way when it announces the oldest of
// N to the tensor cores, which may then multiply what has not arrived; and behind the last load of
// a short row it counts loads that there never were (NVIDIA/cutlass, pull request 2502). And no
// fence stands between such loads and the tensor cores, which read by the asynchronous proxy.
#pragma once

#include "cutlass/arch/memory_sm80.h"
// All that the example's header includes, so that it alone sees the other name.
// clang-format off
#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "cute/arch/simd_sm100.hpp"
#include "cutlass/barrier.h"
#include "cutlass/arch/arch.h"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "gather_tensor.hpp"
#include "common/pow_2.hpp"
#include "kernel/sm100_mla_tile_scheduler.hpp"
// clang-format on

namespace mla::sm100 {

// Whether every load of a row has arrived when it is announced, where `pending` of the youngest
// groups of loads may be on their way: the kernel's loop, with `stages` empty groups before the
// loads, a wait once stages - 1 loads are not announced, and an empty group before each of the
// waits at the end.
constexpr bool arrive_before_announced(int stages, int loads, int pending) {
  int groups = stages, announced = 0, left = 0;
  const auto announces = [&]() {
    ++announced;
    --left;
    return stages + announced <= groups - pending;
  };
  for (int load = 0; load < loads; ++load) {
    ++groups;
    ++left;
    if (left == stages - 1 && !announces()) return false;
  }
  while (left > 0) {
    ++groups;
    if (!announces()) return false;
  }
  return true;
}

// The same for rows of one tile or more, of `loads` loads each.
constexpr bool rows_arrive_before_announced(int stages, int loads, int pending) {
  for (int tiles = 1; tiles < 10; ++tiles) {
    if (!arrive_before_announced(stages, tiles * loads, pending)) return false;
  }
  return true;
}

// Loads of a tile: K in columns of 64, rope part included, then V in 32 tokens by 256 columns.
constexpr int loads_of_tile(int d_v) { return d_v / 64 + 1 + 4 * (d_v / 256); }

// The most groups that may be on their way, of 12 stages of 16-bit elements and 24 of e4m3.
inline constexpr int kPending16Bits = loads_of_tile(256);
inline constexpr int kPending8Bits = loads_of_tile(512);
static_assert(rows_arrive_before_announced(12, loads_of_tile(256), kPending16Bits));
static_assert(rows_arrive_before_announced(12, loads_of_tile(512), kPending16Bits));
static_assert(rows_arrive_before_announced(24, loads_of_tile(512), kPending8Bits));
static_assert(!rows_arrive_before_announced(12, loads_of_tile(512), 12 - 1));  // as it was

}  // namespace mla::sm100

namespace cutlass::arch {

template <int kPending>
CUTLASS_DEVICE void cp_async_wait_for_announced() {
  static_assert(kPending == 0 || kPending == 11 || kPending == 23, "the example has changed");
  cp_async_wait<(kPending == 11   ? mla::sm100::kPending16Bits
                 : kPending == 23 ? mla::sm100::kPending8Bits
                                  : 0)>();
  fence_view_async_shared();
}

}  // namespace cutlass::arch

#define cp_async_wait cp_async_wait_for_announced
#include "kernel/sm100_fmha_mla_tma_warpspecialized.hpp"
#undef cp_async_wait
