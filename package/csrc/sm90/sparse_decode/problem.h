// From a problem of sparse attention to what its kernel is given.
#pragma once

#include "common/status.h"
#include "mla/abi.h"
#include "sm90/common/tensor_map.h"
#include "sm90/params/sparse.h"

namespace mla::sm90::sparse_decode {

// How an op names its caches in messages.
struct Names {
  const char* kv;
  const char* extra_kv;
};
inline constexpr Names kDecodeNames = {"kv_cache", "extra_kv_cache"};
inline constexpr Names kPrefillNames = {"kv", "extra_kv"};

// Sets all that a launch needs but the workspace and the tensor maps; refuses what the kernel
// cannot do. Tensors may be absent.
Status describe(const mla_sparse_decode_problem& problem, const Traits& traits, const Names& names,
                Params* params);

// Refuses a launch without a tensor that the kernel reads or writes.
Status check_tensors(const mla_sparse_decode_problem& problem, const Traits& traits,
                     const Names& names);

int64_t workspace_bytes(const Params& params);
void set_workspace(void* workspace, Params* params);

// Plans without splits, for streams on which not all blocks run at once.
Status plan_without_splits(Params* params);

Status encode_maps(const Traits& traits, Params* params);

}  // namespace mla::sm90::sparse_decode
