#include "cpu/decode/checks.h"

#include <algorithm>

#include "common/arithmetic.h"

namespace mla::cpu::decode {
namespace {

int64_t capacity(const Problem& p) {
  return p.block_table == nullptr ? p.page_size : saturating_product({p.table_width, p.page_size});
}

Status refuse_length(const Problem& p, int64_t b, int64_t most) {
  const char* contiguous =
      p.num_pages > 0 ? " (one page of kv_cache, because block_table is None)" : "";  // 0: a plan's
  return Status::error(MLA_RANGE, text("seq_lens[", b, "]"), text(seq_lens(p)[b]),
                       p.block_table == nullptr ? text("0 to ", most, contiguous)
                                                : text("0 to ", most, " (", p.table_width,
                                                       " pages of ", p.page_size, " tokens)"));
}

Status check_pages(const Problem& p) {
  for (int64_t b = 0; b < requests_of(p); ++b) {
    const int32_t* pages = table_row(p, b);
    const int64_t length = seq_lens(p)[b];
    const int64_t used = length == 0 ? 0 : (length - 1) / p.page_size + 1;  // for any page_size
    for (int64_t i = 0; i < used; ++i) {
      if (pages[i] < 0 || pages[i] >= p.num_pages) {
        return Status::error(MLA_RANGE, text("block_table[", b, ", ", i, "]"), text(pages[i]),
                             p.num_pages > 0 ? text("0 to ", p.num_pages - 1)
                                             : text("no page, because kv_cache has none"));
      }
    }
  }
  return {};
}

Status check_query_bounds(const Problem& p) {
  if (!is_ragged(p)) return {};
  const int32_t* bounds = query_bounds(p);
  for (int64_t r = 0; r < p.num_bounds; ++r) {
    const int64_t least = r == 0 ? 0 : bounds[r - 1];
    const int64_t most = r == 0 ? p.q_len : std::min(p.q_len, least + p.max_q_len);
    if (bounds[r] < least || bounds[r] > most) {
      return Status::error(MLA_RANGE, text("cu_seqlens_q[", r, "]"), text(bounds[r]),
                           text(least, " to ", most, " (max_q_len is ", p.max_q_len, ", and q has ",
                                p.q_len, " tokens)"));
    }
  }
  return {};
}

Status check_token_lengths(const Problem& p) {
  if (p.token_seq_lens == nullptr) return {};
  for (int64_t r = 0; r < requests_of(p); ++r) {
    const QueryTokens query = query_tokens(p, r);
    for (int64_t s = query.begin; s < query.begin + query.count; ++s) {
      const int32_t length = token_seq_lens(p, query.batch)[s * p.token_seq_lens_stride_s];
      if (length < 0 || length > seq_lens(p)[r]) {
        return Status::error(MLA_RANGE, text("token_seq_lens[", query.batch, ", ", s, "]"),
                             text(length), text("0 to ", seq_lens(p)[r], ", seq_lens[", r, "]"));
      }
    }
  }
  return {};
}

}  // namespace

Status check_lengths(const Problem& p, int64_t most) {
  for (int64_t b = 0; b < requests_of(p); ++b) {
    if (seq_lens(p)[b] < 0 || seq_lens(p)[b] > most) return refuse_length(p, b, most);
  }
  return {};
}

Status check_shapes(const Problem& p, const AttentionTypes& types) {
  MLA_TRY(check_queries(p));
  MLA_TRY(check_extents({{"num_heads", p.num_heads},
                         {"num_pages", p.num_pages},
                         {"page_size", p.page_size},
                         {"table_width", p.table_width},
                         {"max_splits", p.max_splits}}));
  // Plans count items in 32 bits, and a request has at most 64 splits.
  constexpr int64_t kMostRows = kMaxInt / 64;
  const int64_t requests = requests_of(p), q_len = most_query_tokens(p);
  if (requests > kMostRows || saturating_product({requests, q_len, p.num_heads}) > kMostRows) {
    return Status::error(
        MLA_SHAPE, "q",
        text("[", requests, ", ", q_len, ", ", p.num_heads, ", ", types.kv.d_qk, "]"),
        text("up to ", kMostRows, " rows of ", types.kv.d_qk));
  }
  return {};
}

Status check_contiguous(const Problem& p) {
  if (p.block_table == nullptr && p.num_pages < requests_of(p)) {
    return Status::error(
        MLA_SHAPE, "kv_cache", text(p.num_pages, " pages"),
        text("a page for each of ", requests_of(p), " requests, where there is no block_table"));
  }
  return {};
}

Status check_values(const Problem& p, const AttentionTypes& types) {
  MLA_TRY(check_all_queries(p));
  const int64_t rows = p.batch * p.q_len * p.num_heads;
  const int64_t tokens = saturating_product({p.num_pages, p.page_size});
  MLA_TRY(check_present({{"seq_lens", p.seq_lens, requests_of(p)},
                         {"q", p.q_latent, rows},
                         {"q", p.q_rope, types.kv.rope > 0 ? rows : 0},
                         {"out", p.out, rows},
                         {"kv_cache", p.kv_latent, tokens},
                         {"kv_cache", p.kv_rope, types.kv.has_rope_view() ? tokens : 0}}));
  MLA_TRY(check_lengths(p, capacity(p)));
  MLA_TRY(check_query_bounds(p));
  MLA_TRY(check_token_lengths(p));
  return p.block_table == nullptr ? Status() : check_pages(p);
}

}  // namespace mla::cpu::decode
