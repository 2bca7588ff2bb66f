#include "sm90/decode/problem.h"

#include <algorithm>
#include <numeric>

#include "common/checks.h"
#include "common/queries.h"
#include "sm90/common/alignment.h"
#include "sm90/common/refuse.h"
#include "sm90/common/scales.h"

namespace mla::sm90::decode {
namespace {

using Problem = mla_decode_problem;

bool is_contiguous(const Problem& p) { return p.block_table == nullptr && p.kv_latent != nullptr; }

Status check_kv(const Problem& p, const Traits& traits) {
  MLA_TRY(check_aligned_to_16_bytes(
      "kv_cache", p.kv_latent, traits.kv,
      {{p.kv_latent_stride_page, p.num_pages}, {p.kv_latent_stride_token, p.page_size}}));
  if (traits.format().rope == 0) return {};
  return check_aligned_to_16_bytes(
      "kv_cache", p.kv_rope, traits.kv,
      {{p.kv_rope_stride_page, p.num_pages}, {p.kv_rope_stride_token, p.page_size}});
}

// The tokens of one page that one instruction loads. The blocks of a cluster share the boxes of a
// tile; of e4m3, whose boxes are single chunks, they share the chunks.
int box_of(const Problem& p, const Traits& traits, const Shape& shape) {
  const bool is_e4m3 = traits.kv == DType::e4m3;
  const int64_t most = is_e4m3 ? kTileTokens : kTileTokens / shape.cluster;
  if (!is_contiguous(p)) return static_cast<int>(std::gcd(p.page_size, most));
  return static_cast<int>(is_e4m3 || p.page_size % kSwizzleRows == 0 ? most : kSwizzleRows);
}

bool is_query_aligned(const Problem& p, const Traits& traits) {
  const bool has_rope = traits.format().rope > 0;
  return is_aligned_to_16_bytes(p.q_latent, traits.q,
                                {{p.q_latent_stride_b, p.batch},
                                 {p.q_latent_stride_s, p.q_len},
                                 {p.q_latent_stride_h, p.num_heads}}) &&
         (!has_rope || is_aligned_to_16_bytes(p.q_rope, traits.q,
                                              {{p.q_rope_stride_b, p.batch},
                                               {p.q_rope_stride_s, p.q_len},
                                               {p.q_rope_stride_h, p.num_heads}}));
}

// Whether the query tokens of a request lie one after the other, so that its rows are those of one
// token with more heads.
bool are_tokens_contiguous(const Problem& p, const Traits& traits) {
  const bool has_rope = traits.format().rope > 0;
  return !is_ragged(p) && p.q_latent_stride_s == p.num_heads * p.q_latent_stride_h &&
         (!has_rope || p.q_rope_stride_s == p.num_heads * p.q_rope_stride_h);
}

int64_t max_partials(const Shape& shape) {
  if (shape.max_splits == 1) return 0;
  if (shape.max_splits > 1) return int64_t{shape.batch} * shape.max_splits;
  return 2 * (shape.parts - 1);  // every cut is in one request and has two sides
}

// Whether the attention kernel itself combines what its blocks have split.
bool combines(const Shape& shape) {
  return shape.max_splits == 0 && shape.parts > 1 && shape.parts <= kMaxParts;
}

// A view of queries or results. Ragged ones are found by their first token.
RowView rows(const Problem& p, void* data, int64_t b, int64_t s, int64_t h) {
  return {data, {is_ragged(p) ? s : b, s, h}};
}

void set_query(const Problem& p, const Traits& traits, Params* params) {
  const Shape& shape = params->shape;
  auto& query = params->query;
  query.is_one_batch = is_ragged(p);
  query.latent = rows(p, p.q_latent, p.q_latent_stride_b, p.q_latent_stride_s, p.q_latent_stride_h);
  query.rope = rows(p, p.q_rope, p.q_rope_stride_b, p.q_rope_stride_s, p.q_rope_stride_h);
  query.is_aligned_to_16 = is_query_aligned(p, traits);
  // TMA loads a tile as one box if the tile has heads of one token, or whole tokens. Other tiles
  // are a box only if the tokens lie one after the other: then they are one token with more heads.
  const bool fits_tokens =
      shape.q_len == 1 || kTileRows % shape.num_heads == 0 || shape.num_heads % kTileRows == 0;
  const bool flattens = !fits_tokens && are_tokens_contiguous(p, traits);
  query.map_heads =
      flattens ? Divisor(static_cast<uint32_t>(std::max(shape.rows, 1))) : shape.heads;
  query.by_tma =
      traits.schedule == Schedule::rows_m64 && query.is_aligned_to_16 && (fits_tokens || flattens);
  // The queries of a request follow from its number where all have as many tokens. Without capacity
  // there are no maps, and the warps that dequantize do not expect an early Q.
  query.first_is_early = query.by_tma && !query.is_one_batch && traits.load == Load::tma &&
                         traits.kv != DType::e4m3 && params->capacity > 0;
}

}  // namespace

Status describe_shape(const Problem& p, Shape* shape) {
  MLA_TRY(check_queries(p));
  if (p.q_len > kMaxInt) {
    return refuse("q", text(p.q_len, " tokens"), "fewer than 2^31");
  }
  return sm90::describe_shape({p.device, requests_of(p), most_query_tokens(p), p.num_heads,
                               p.max_splits, p.batch_invariant != 0},
                              shape);
}

Status check_problem(const Problem& p, const Traits& traits) {
  MLA_TRY(check_extents(
      {{"num_pages", p.num_pages}, {"page_size", p.page_size}, {"table_width", p.table_width}}));
  if (p.num_pages > kMaxInt || p.page_size > kMaxInt) {
    return refuse("kv_cache", text(p.num_pages, " pages of ", p.page_size),
                  "fewer than 2^31 of each");
  }
  if (is_contiguous(p)) {
    if (p.num_pages < requests_of(p)) {
      return Status::error(MLA_SHAPE, "kv_cache", text(p.num_pages, " rows"),
                           text("a row for each of ", requests_of(p), " requests"));
    }
  } else if (traits.load == Load::tma && p.page_size % kSwizzleRows != 0) {
    return refuse("page_size", text(p.page_size),
                  text("multiples of ", kSwizzleRows, "; others take load gather"));
  }
  const int64_t rows = saturating_product({most_query_tokens(p), p.num_heads});
  if (traits.schedule == Schedule::swap_ab && rows > swap_ab_rows(traits.kv, traits.d_qk)) {
    return refuse(
        "q_len", text(most_query_tokens(p), " tokens of ", p.num_heads, " heads"),
        text("up to ", swap_ab_rows(traits.kv, traits.d_qk), " rows; more take schedule rows_m64"));
  }
  return check_kv(p, traits);
}

int64_t workspace_bytes(const Shape& shape) {
  const int64_t numbers = max_partials(shape) * shape.padded_rows() * (kLatent + 1);
  return (numbers + (combines(shape) ? shape.blocks() : 0)) * static_cast<int64_t>(sizeof(float));
}

Status describe(const Problem& p, const Traits& traits, const Shape& shape, const void* plan,
                void* workspace, Params* params) {
  MLA_TRY(set_scales(p, traits, params));
  params->shape = shape;
  params->plan_buffer = plan;
  params->lengths = static_cast<const int32_t*>(p.seq_lens);
  params->causal = p.causal;
  params->token_lengths =
      rows(p, p.token_seq_lens, p.token_seq_lens_stride_b, p.token_seq_lens_stride_s, 0);
  const int64_t width = is_contiguous(p) ? 1 : p.table_width;
  params->capacity = static_cast<int32_t>(std::min(
      p.num_pages == 0 ? 0 : saturating_product({width, p.page_size}), kMaxInt - kTileTokens * 2));
  if (is_ragged(p)) {
    params->bounds = {static_cast<const int32_t*>(p.cu_seqlens_q), static_cast<int32_t>(p.q_len)};
  }
  set_query(p, traits, params);
  params->out = rows(p, p.out, p.out_stride_b, p.out_stride_s, p.out_stride_h);
  const std::initializer_list<Stride> out_strides = {
      {p.out_stride_b, p.batch}, {p.out_stride_s, p.q_len}, {p.out_stride_h, p.num_heads}};
  params->out_is_aligned_to_4 = is_aligned_to_4_elements(p.out, traits.out, out_strides);
  params->out_is_aligned_to_16 = is_aligned_to_16_bytes(p.out, traits.out, out_strides);
  params->lse = rows(p, p.lse, p.lse_stride_b, p.lse_stride_s, p.lse_stride_h);
  const int box_tokens = box_of(p, traits, shape);
  params->kv = {{p.kv_latent, p.kv_rope, p.kv_latent_stride_page, p.kv_latent_stride_token,
                 p.kv_rope_stride_page, p.kv_rope_stride_token},
                static_cast<const int32_t*>(p.block_table),
                p.block_table_stride_b,
                static_cast<int32_t>(p.num_pages),
                Divisor(static_cast<uint32_t>(std::max<int64_t>(p.page_size, 1))),
                box_tokens,
                kTileTokens / box_tokens,
                p.page_size % kSwizzleRows == 0};
  const int64_t padded = shape.padded_rows();
  auto* const partial = static_cast<float*>(workspace);
  const int64_t all = max_partials(shape) * padded;
  params->combines = combines(shape);
  params->out_columns = traits.d_v;
  params->partials = {partial, partial + all * kLatent, static_cast<int32_t>(padded),
                      reinterpret_cast<uint32_t*>(partial + all * (kLatent + 1))};
  return {};
}

Status encode_maps(const Problem& p, const Traits& traits, Params* params) {
  if (traits.load == Load::tma) {
    MLA_TRY(encode_kv_maps(params->kv, traits, &params->latent_map, &params->rope_map));
  }
  auto& query = params->query;
  if (!query.by_tma) return {};
  const CacheFormat& format = traits.format();
  const Shape& shape = params->shape;
  const int64_t heads = query.map_heads.value();
  const int64_t tokens = p.q_len * p.num_heads / heads;
  const bool tile_has_one_token = shape.q_len == 1 || tokens == 1;
  const int box_heads = tile_has_one_token ? kTileRows : std::min(shape.num_heads, kTileRows);
  return encode_query_maps(
      {p.batch, tokens, heads, query.latent.data, query.latent.stride, query.rope.data,
       query.rope.stride, format.latent, format.rope, box_heads},
      traits.q, &query.latent_map, &query.rope_map);
}

}  // namespace mla::sm90::decode
