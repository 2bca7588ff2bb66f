#include "sm90/sparse_decode/head_groups.h"

#include "common/checks.h"
#include "cuda/device.h"
#include "sm90/common/tile.h"

namespace mla::sm90::sparse_decode {
namespace {

using Problem = mla_sparse_decode_problem;

// The most tiles of all groups that a multiprocessor may have. With more, loading them for each
// group takes longer than what groups save.
constexpr int64_t most_tiles(const Traits& traits) { return traits.format().is_bytes ? 4 : 2; }

// The requests or the query tokens of one request become the batch. Where there are several of
// both, no stride leads from token to token.
bool has_one_stride(const Problem& p) { return p.batch == 1 || p.q_len == 1; }
int64_t token_stride(const Problem& p, int64_t stride_b, int64_t stride_s) {
  return p.q_len == 1 ? stride_b : stride_s;
}

}  // namespace

Status takes_head_groups(const Problem& p, const Traits& traits, const Context& context,
                         bool* takes) {
  *takes = false;
  if (!context.may_group) return {};
  if (p.num_heads <= kGroupHeads || p.num_heads % kGroupHeads != 0 || p.num_heads > kMaxSparseHeads)
    return {};
  // A limit of splits keeps results the same in any batch, which another kernel would not.
  if (!has_one_stride(p) || p.max_splits != 0 || p.topk < 0 || p.extra_topk < 0) return {};
  int sms = 0;
  MLA_TRY(cuda::sm_count(p.device, &sms));
  const int64_t tiles =
      ceil_div<int64_t>(p.topk, kTileTokens) + ceil_div<int64_t>(p.extra_topk, kTileTokens);
  const int64_t all = saturating_product({p.batch, p.q_len, p.num_heads / kGroupHeads, tiles});
  *takes = all > 0 && all <= most_tiles(traits) * sms;
  return {};
}

Problem in_head_groups(const Problem& p) {
  Problem grouped = p;
  grouped.batch = p.batch * p.q_len;
  grouped.q_len = p.num_heads / kGroupHeads;
  grouped.num_heads = kGroupHeads;
  const auto of_heads = [&](int64_t stride_h, int64_t* stride_b, int64_t* stride_s) {
    *stride_b = token_stride(p, *stride_b, *stride_s);
    *stride_s = kGroupHeads * stride_h;
  };
  const auto of_tokens = [&](int64_t* stride_b, int64_t* stride_s) {
    *stride_b = token_stride(p, *stride_b, *stride_s);
    *stride_s = 0;
  };
  of_heads(p.q_latent_stride_h, &grouped.q_latent_stride_b, &grouped.q_latent_stride_s);
  of_heads(p.q_rope_stride_h, &grouped.q_rope_stride_b, &grouped.q_rope_stride_s);
  of_heads(p.out_stride_h, &grouped.out_stride_b, &grouped.out_stride_s);
  of_heads(p.lse_stride_h, &grouped.lse_stride_b, &grouped.lse_stride_s);
  of_heads(p.max_logits_stride_h, &grouped.max_logits_stride_b, &grouped.max_logits_stride_s);
  of_tokens(&grouped.indices_stride_b, &grouped.indices_stride_s);
  of_tokens(&grouped.topk_length_stride_b, &grouped.topk_length_stride_s);
  of_tokens(&grouped.extra_indices_stride_b, &grouped.extra_indices_stride_s);
  of_tokens(&grouped.extra_topk_length_stride_b, &grouped.extra_topk_length_stride_s);
  return grouped;
}

Context in_head_groups(const Context& context) {
  Context grouped = context;
  grouped.sink_stride = kGroupHeads;
  return grouped;
}

}  // namespace mla::sm90::sparse_decode
