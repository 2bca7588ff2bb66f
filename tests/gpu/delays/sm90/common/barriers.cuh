// Stands in for the header of csrc: barriers at which warps stall at random, after a wait, before
// and after an arrival, and before copies that a barrier is to expect. Every role uses barriers in
// every turn of its loop, so each falls behind the others in turn.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cstdint>

namespace mla::sm90 {

// All bits of the result depend on all bits of `x`.
__device__ __forceinline__ uint32_t scrambled(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// Sleeps up to 2 us, each warp of a role for another time. Half of the roles of a block sleep;
// which half changes every 33 us. There is no branch, so that a warp stays together.
__device__ __forceinline__ void stall() {
  constexpr uint32_t kLongest = 1023;     // ns; the hardware sleeps up to twice as long
  constexpr uint32_t kConsumerWarps = 8;  // of the other warps, each is a role
  uint32_t now;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now));
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t role = warp < kConsumerWarps ? warp / 4 : warp;
  const uint32_t drawn = scrambled(now >> 15 ^ blockIdx.x << 21 ^ role << 17) & 1;
  __nanosleep(drawn * (scrambled(now ^ clock() ^ warp << 27) & kLongest));
}

template <class Base>
struct Stalling : Base {
  __device__ __forceinline__ void wait(uint32_t phase) const {
    Base::wait(phase);
    stall();
  }

  template <class... Arguments>
  __device__ __forceinline__ void arrive(Arguments... arguments) const {
    stall();
    Base::arrive(arguments...);
    stall();
  }

  __device__ __forceinline__ void expect_transaction(uint32_t bytes) const {
    stall();
    Base::expect_transaction(bytes);
  }

  __device__ __forceinline__ void arrive_and_expect_tx(uint32_t bytes) const {
    stall();
    Base::arrive_and_expect_tx(bytes);
    stall();
  }
};

using TransactionBarrier = Stalling<cutlass::arch::ClusterTransactionBarrier>;
using Barrier = Stalling<cutlass::arch::ClusterBarrier>;

}  // namespace mla::sm90
