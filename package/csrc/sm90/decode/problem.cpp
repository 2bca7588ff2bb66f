#include "sm90/decode/problem.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/checks.h"
#include "cuda/launch.h"
#include "sm90/common/alignment.h"
#include "sm90/common/scales.h"

namespace mla::sm90 {
namespace {

using Problem = mla_decode_problem;

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostSplits = 1024;

// Without a limit of the caller's, a batch-invariant request may have this many parts.
constexpr int64_t kInvariantSplits = 32;

bool is_contiguous(const Problem& p) { return p.block_table == nullptr && p.kv_latent != nullptr; }

Status check_kv(const Problem& p, const Traits& traits) {
  MLA_TRY(check_in_pieces(
      "kv_cache", p.kv_latent, traits.kv,
      {{p.kv_latent_stride_page, p.num_pages}, {p.kv_latent_stride_token, p.page_size}}));
  return check_in_pieces(
      "kv_cache", p.kv_rope, traits.kv,
      {{p.kv_rope_stride_page, p.num_pages}, {p.kv_rope_stride_token, p.page_size}});
}

// Tokens of one page that are loaded together. What tensor cores read as it is has the blocks of a
// cluster share the boxes of a tile; of codes, they share the chunks.
int box_of(const Problem& p, const Traits& traits, const Shape& shape) {
  const bool are_codes = traits.kv == DType::e4m3;
  const int64_t most = are_codes ? kTileTokens : kTileTokens / shape.cluster;
  if (!is_contiguous(p)) return static_cast<int>(std::gcd(p.page_size, most));
  return static_cast<int>(are_codes || p.page_size % kGroup == 0 ? most : kGroup);
}

RowView rows(void* data, int64_t b, int64_t s, int64_t h) { return {data, {b, s, h}}; }

}  // namespace

Status describe_shape(const Problem& p, Shape* shape) {
  MLA_TRY(check_extents({{"batch", p.batch}, {"q_len", p.q_len}}));
  if (p.num_heads < 1 || p.num_heads > kMostHeads) {
    return refuse("num_heads", text(p.num_heads), text("1 to ", kMostHeads));
  }
  const int64_t rows = saturating_product({p.q_len, p.num_heads});
  if (saturating_product({std::max<int64_t>(p.batch, 1), rows}) > kMaxInt / 2 ||
      p.batch > kMaxInt / 4) {
    return refuse("batch", text(p.batch, " requests of ", p.q_len, " tokens"),
                  text("fewer than 2^30 rows, which are batch x q_len x num_heads"));
  }
  if (p.max_splits > kMostSplits)
    return refuse("max_splits", text(p.max_splits), text("0 to ", kMostSplits));
  int sms = 0;
  MLA_TRY(cuda::sm_count(p.device, &sms));
  *shape = {};
  shape->batch = static_cast<int32_t>(p.batch);
  shape->q_len = static_cast<int32_t>(p.q_len);
  shape->num_heads = static_cast<int32_t>(p.num_heads);
  shape->heads = Divisor(static_cast<uint32_t>(p.num_heads));
  shape->rows = static_cast<int32_t>(rows);
  shape->cluster = rows > kTileRows ? 2 : 1;
  shape->groups = static_cast<int32_t>(
      std::max<int64_t>(1, ceil_div<int64_t>(rows, shape->cluster * kTileRows)));
  const int clusters = sms / shape->cluster;
  shape->parts = std::max(1, clusters / shape->groups);
  shape->max_splits = static_cast<int32_t>(
      p.max_splits == 0 && p.batch_invariant != 0 ? kInvariantSplits : p.max_splits);
  const int64_t slots = shape->max_splits > 1 ? p.batch * shape->max_splits : 0;
  if (slots > kMaxInt / 2) {
    return refuse("max_splits", text(shape->max_splits, " splits of ", p.batch, " requests"),
                  "fewer than 2^30 splits in all");
  }
  return {};
}

Status check_problem(const Problem& p, const Traits& traits) {
  MLA_TRY(check_extents(
      {{"num_pages", p.num_pages}, {"page_size", p.page_size}, {"table_width", p.table_width}}));
  if (p.num_pages > kMaxInt || p.page_size > kMaxInt) {
    return refuse("kv_cache", text(p.num_pages, " pages of ", p.page_size),
                  "fewer than 2^31 of each");
  }
  if (is_contiguous(p)) {
    if (p.num_pages < p.batch) {
      return Status::error(MLA_SHAPE, "kv_cache", text(p.num_pages, " rows"),
                           text("a row for each of ", p.batch, " requests"));
    }
  } else if (traits.load == Load::tma && p.page_size % kGroup != 0) {
    return refuse("page_size", text(p.page_size),
                  text("multiples of ", kGroup, "; others take load gather"));
  }
  const int64_t rows = saturating_product({p.q_len, p.num_heads});
  if (traits.schedule == Schedule::swap_ab && rows > kStreamRows) {
    return refuse("q_len", text(p.q_len, " tokens of ", p.num_heads, " heads"),
                  text("up to ", kStreamRows, " rows; more take schedule rows_m64"));
  }
  return check_kv(p, traits);
}

namespace {

int64_t slot_rows(const Shape& shape) { return int64_t{shape.groups} * shape.cluster * kTileRows; }

int64_t slots(const Shape& shape) {
  if (shape.max_splits == 1) return 0;
  if (shape.max_splits > 1) return int64_t{shape.batch} * shape.max_splits;
  return 2 * (shape.parts - 1);  // every cut is in one request, whose two sides it parts
}

}  // namespace

int64_t workspace_bytes(const Shape& shape) {
  return slots(shape) * slot_rows(shape) * (kLatent + 1) * static_cast<int64_t>(sizeof(float));
}

Status describe(const Problem& p, const Traits& traits, const Shape& shape, const void* plan,
                void* workspace, Params* params) {
  MLA_TRY(set_scales(p, traits.kv, params));
  params->shape = shape;
  params->plan = plan;
  params->lengths = static_cast<const int32_t*>(p.seq_lens);
  params->causal = p.causal;
  const int64_t width = is_contiguous(p) ? 1 : p.table_width;
  params->capacity = static_cast<int32_t>(std::min(
      p.num_pages == 0 ? 0 : saturating_product({width, p.page_size}), kMaxInt - kTileTokens * 2));
  Query& query = params->query;
  query.latent = rows(p.q_latent, p.q_latent_stride_b, p.q_latent_stride_s, p.q_latent_stride_h);
  query.rope = rows(p.q_rope, p.q_rope_stride_b, p.q_rope_stride_s, p.q_rope_stride_h);
  query.in_pieces = is_in_pieces(p.q_latent, traits.q,
                                 {{p.q_latent_stride_b, p.batch},
                                  {p.q_latent_stride_s, p.q_len},
                                  {p.q_latent_stride_h, p.num_heads}}) &&
                    is_in_pieces(p.q_rope, traits.q,
                                 {{p.q_rope_stride_b, p.batch},
                                  {p.q_rope_stride_s, p.q_len},
                                  {p.q_rope_stride_h, p.num_heads}});
  query.by_tma = traits.schedule == Schedule::rows_m64 && query.in_pieces &&
                 (kTileRows % shape.num_heads == 0 || shape.num_heads % kTileRows == 0);
  params->out = rows(p.out, p.out_stride_b, p.out_stride_s, p.out_stride_h);
  params->out_in_fours = is_in_fours(
      p.out, traits.out,
      {{p.out_stride_b, p.batch}, {p.out_stride_s, p.q_len}, {p.out_stride_h, p.num_heads}});
  params->lse = rows(p.lse, p.lse_stride_b, p.lse_stride_s, p.lse_stride_h);
  const int box_tokens = box_of(p, traits, shape);
  params->kv = {p.kv_latent,
                p.kv_rope,
                p.kv_latent_stride_page,
                p.kv_latent_stride_token,
                p.kv_rope_stride_page,
                p.kv_rope_stride_token,
                static_cast<const int32_t*>(p.block_table),
                p.block_table_stride_b,
                static_cast<int32_t>(p.num_pages),
                Divisor(static_cast<uint32_t>(std::max<int64_t>(p.page_size, 1))),
                box_tokens,
                kTileTokens / box_tokens,
                p.page_size % kGroup == 0};
  const int64_t padded = slot_rows(shape);
  auto* const partial = static_cast<float*>(workspace);
  params->merges = shape.max_splits == 0 && shape.parts > 1 && shape.parts <= kMostParts;
  params->partials = {partial, partial + slots(shape) * padded * kLatent,
                      static_cast<int32_t>(padded)};
  return {};
}

}  // namespace mla::sm90
