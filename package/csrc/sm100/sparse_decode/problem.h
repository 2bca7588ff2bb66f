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

// Returns the problem of gather_kv that gathers the selected rows into the workspace.
mla_gather_kv_problem gather_problem(const mla_sparse_decode_problem& problem,
                                     const AttentionProblem& attention,
                                     const WorkspaceLayout& layout, void* workspace);

}  // namespace sparse_decode
}  // namespace mla::sm100
