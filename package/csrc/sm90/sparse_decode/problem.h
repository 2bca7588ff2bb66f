// From a problem of sparse attention to what its kernel is given.
#pragma once

#include "common/status.h"
#include "mla/abi.h"
#include "sm90/common/tensor_map.h"
#include "sm90/params/sparse.h"

namespace mla::sm90::sparse_decode {

// What the struct of a problem does not say.
struct Context {
  const char* kv;  // how the op names its caches in messages
  const char* extra_kv;
  // How many heads further the attention sinks of the next query token are; 0: tokens share them.
  int64_t sink_stride;
  bool may_group;  // whether few query tokens may be computed by another kernel than many
};
inline constexpr Context kDecodeContext = {"kv_cache", "extra_kv_cache", 0, true};
// A prefill has no limit of splits, which would say that its results may not depend on the batch.
inline constexpr Context kPrefillContext = {"kv", "extra_kv", 0, false};

// Sets all that a launch needs but the workspace and the tensor maps; refuses what the kernel
// cannot do. Tensors may be absent.
Status describe(const mla_sparse_decode_problem& problem, const Traits& traits,
                const Context& context, Params* params);

// Refuses a launch without a tensor that the kernel reads or writes.
Status check_tensors(const mla_sparse_decode_problem& problem, const Traits& traits,
                     const Context& context);

int64_t workspace_bytes(const Params& params);
void set_workspace(void* workspace, Params* params);

// Plans without splits, for streams on which not all blocks run at once.
Status plan_without_splits(Params* params);

Status encode_maps(const Traits& traits, Params* params);

}  // namespace mla::sm90::sparse_decode
