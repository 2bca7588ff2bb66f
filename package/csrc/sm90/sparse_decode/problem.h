// A problem of sparse attention in the kernel's terms.
#pragma once

#include "common/status.h"
#include "mla/abi.h"
#include "sm90/decode/problem.h"
#include "sm90/sparse_decode/params.h"

namespace mla::sm90::sparse {

// How an op names its caches in messages.
struct Names {
  const char* kv;
  const char* extra_kv;
};
inline constexpr Names kDecodeNames = {"kv_cache", "extra_kv_cache"};
inline constexpr Names kPrefillNames = {"kv", "extra_kv"};

// All that a launch needs, but for the workspace and the tensor maps; refuses what the kernel
// cannot do. Tensors may be absent.
Status describe(const mla_sparse_decode_problem& problem, const Traits& traits, const Names& names,
                SelectedParams* params);

// That no tensor is absent which the kernel reads or writes.
Status check_tensors(const mla_sparse_decode_problem& problem, const Traits& traits,
                     const Names& names);

int64_t workspace_bytes(const SelectedParams& params);
void set_workspace(void* workspace, SelectedParams* params);

// A plan that splits no request, for streams on which the blocks do not fit at once.
Status split_nothing(SelectedParams* params);

Status encode_maps(const Traits& traits, SelectedParams* params);

}  // namespace mla::sm90::sparse
