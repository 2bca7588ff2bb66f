// Where in the workspace a launch keeps what it prepares for the kernel and what the kernel leaves.
#pragma once

#include <cstdint>

#include "common/status.h"
#include "sm100/cutlass_mla/attention_problem.h"

namespace mla::sm100 {

// The offsets into the workspace count bytes.
struct WorkspaceLayout {
  int64_t arrays;
  int64_t table;
  int64_t query;
  int64_t out;
  int64_t lse;
  int64_t gathered;
  int64_t partial;
  int64_t bytes;
  int64_t table_stride;
  bool packs_query;
  bool unpacks;  // outputs are copied to where they belong
};

// Lays the workspace out, without touching it.
Status lay_out(const AttentionProblem& attention, WorkspaceLayout* layout);

// Computes the workspace of a problem of the ABI, dense or sparse, of which only the shape is
// known.
template <class Problem>
Status workspace_bytes(const Problem& problem, const Traits& traits, int64_t* bytes) {
  AttentionProblem attention;
  MLA_TRY(describe(problem, traits, &attention));
  WorkspaceLayout layout;
  MLA_TRY(lay_out(attention, &layout));
  *bytes = layout.bytes;
  return {};
}

// Returns the arrays of the rows, which the kernel reads.
RowArrays row_arrays(const AttentionProblem& attention, const WorkspaceLayout& layout,
                     void* workspace);

// Launches the kernel that prepares the rows in the workspace.
Status launch_rows(const AttentionProblem& attention, const WorkspaceLayout& layout,
                   void* workspace, cudaStream_t stream);

}  // namespace mla::sm100
