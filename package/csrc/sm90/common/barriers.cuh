// This header names the types of the barriers in shared memory. `nox -s delays` builds the payload
// with another header in place of this one, whose barriers stall warps at random
// (tests/gpu/delays).
#pragma once

#include <cutlass/arch/barrier.h>

namespace mla::sm90 {

using TransactionBarrier = cutlass::arch::ClusterTransactionBarrier;
using Barrier = cutlass::arch::ClusterBarrier;

}  // namespace mla::sm90
