// Query tokens whose heads are computed in groups of sixteen, by the kernel of `swap_ab`.
//
// A block of `rows_m64` has 64 heads of a token. Where tokens are few, most multiprocessors have
// nothing to do, and a launch takes as long as a block stores and combines 64 rows. A block for
// each group has a quarter of that; but each loads the token's KV for itself.
#pragma once

#include "common/status.h"
#include "mla/abi.h"
#include "sm90/sparse_decode/problem.h"

namespace mla::sm90::sparse_decode {

inline constexpr int64_t kGroupHeads = 16;

// Says whether a launch is small enough for groups to be faster. It depends on extents only, so
// that a workspace of the size that was asked for fits.
Status takes_head_groups(const mla_sparse_decode_problem& problem, const Traits& traits,
                         const Context& context, bool* takes);

// The same problem with a query token for each group, of as many heads. The groups of a token are a
// batch, and have the same indices.
//
// @pre It takes groups.
mla_sparse_decode_problem in_head_groups(const mla_sparse_decode_problem& problem);
Context in_head_groups(const Context& context);

}  // namespace mla::sm90::sparse_decode
