// What the barriers of a block are. Tests put another header in place of this one, at whose
// barriers warps stall (tests/gpu/delays).
#pragma once

#include <cutlass/arch/barrier.h>

namespace mla::sm90 {

using FullBarrier = cutlass::arch::ClusterTransactionBarrier;
using Barrier = cutlass::arch::ClusterBarrier;

}  // namespace mla::sm90
