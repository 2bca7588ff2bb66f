#pragma once

#include "mla/abi.h"
#include "sm100/decode/attention.h"

namespace mla::sm100::sparse_decode {

// Says a problem in the kernel's terms, apart from scales, and refuses what the kernel cannot do.
// Tensors may be absent.
Status describe(const mla_sparse_decode_problem& problem, const Traits& traits,
                Attention* attention);

// The same of a whole problem.
Status describe_all(const mla_sparse_decode_problem& problem, const Traits& traits,
                    Attention* attention);

// The gathered rows in the workspace become the KV of the attention.
void read_gathered(const Layout& layout, void* workspace, Attention* attention);

// What gathers the selected rows into the workspace.
mla_gather_kv_problem gathering(const mla_sparse_decode_problem& problem,
                                const Attention& attention, const Layout& layout, void* workspace);

}  // namespace mla::sm100::sparse_decode
