#pragma once

#include "mla/abi.h"
#include "sm100/cutlass_mla/attention_problem.h"
#include "sm100/cutlass_mla/workspace.h"

namespace mla::sm100 {

// Describes a problem of sparse decode apart from its scales, and refuses what the kernel cannot
// do. Tensors may be absent.
Status describe(const mla_sparse_decode_problem& problem, const Traits& traits,
                AttentionProblem* attention);

namespace sparse_decode {

// Makes the rows that are gathered in the workspace the KV of the attention.
void set_gathered_kv(const WorkspaceLayout& layout, void* workspace, AttentionProblem* attention);

// Refuses an extra cache that has rows but no memory.
Status check_extra(const mla_sparse_decode_problem& problem);

}  // namespace sparse_decode
}  // namespace mla::sm100
