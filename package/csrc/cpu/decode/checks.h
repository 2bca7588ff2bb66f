// The lengths, pages and query tokens of a problem, and what of them is refused.
#pragma once

#include <cstdint>

#include "common/queries.h"
#include "cpu/attention.h"

namespace mla::cpu::decode {

using Problem = mla_decode_problem;

inline const int32_t* seq_lens(const Problem& p) { return static_cast<const int32_t*>(p.seq_lens); }

inline const int32_t* table_row(const Problem& p, int64_t b) {
  return static_cast<const int32_t*>(p.block_table) + b * p.block_table_stride_b;
}

inline const int32_t* query_bounds(const Problem& p) {
  return static_cast<const int32_t*>(p.cu_seqlens_q);
}

// How many keys each query token sees, where causal masking does not say it.
inline const int32_t* token_seq_lens(const Problem& p, int64_t batch) {
  return static_cast<const int32_t*>(p.token_seq_lens) + batch * p.token_seq_lens_stride_b;
}

// The query tokens of a request: those of its batch, or some of the one batch.
struct QueryTokens {
  int64_t batch;
  int64_t begin;
  int64_t count;
};

inline QueryTokens query_tokens(const Problem& p, int64_t request) {
  if (!is_ragged(p)) return {request, 0, p.q_len};
  const int32_t* bounds = query_bounds(p) + request;
  return {0, bounds[0], bounds[1] - bounds[0]};
}

// Refuses shapes that no launch takes. A part of the problem may be unknown.
Status check_shapes(const Problem& p, const AttentionTypes& types);
Status check_contiguous(const Problem& p);
// Refuses lengths of requests beyond `most`.
Status check_lengths(const Problem& p, int64_t most);
// Refuses a launch that lacks a tensor, and lengths, pages and bounds that lead out of one.
Status check_values(const Problem& p, const AttentionTypes& types);

}  // namespace mla::cpu::decode
