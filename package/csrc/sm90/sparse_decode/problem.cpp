#include "sm90/sparse_decode/problem.h"

#include <algorithm>

#include "common/checks.h"
#include "mla/conversions.h"
#include "sm90/common/alignment.h"
#include "sm90/common/refuse.h"
#include "sm90/common/scales.h"

namespace mla::sm90::sparse_decode {
namespace {

using Problem = mla_sparse_decode_problem;

constexpr int64_t kMaxTopk = int64_t{1} << 24;

Status check_shapes(const Problem& p, const Context& context) {
  MLA_TRY(check_extents({{"batch", p.batch},
                         {"q_len", p.q_len},
                         {"topk", p.topk},
                         {context.kv, p.num_pages},
                         {context.kv, p.page_size},
                         {"extra_topk", p.extra_topk},
                         {context.extra_kv, p.extra_num_pages},
                         {context.extra_kv, p.extra_page_size},
                         {"max_splits", p.max_splits}}));
  if (p.topk >= kMaxTopk || p.extra_topk >= kMaxTopk - p.topk) {
    return refuse("topk", text(p.topk, " and ", p.extra_topk),
                  "fewer than 2^24 indices of a token");
  }
  return {};
}

// Query tokens are requests of one token each.
Status set_shape(const Problem& p, const Traits& traits, Params* params) {
  const int64_t tokens = saturating_product({p.batch, p.q_len});
  if (p.num_heads > kMaxSparseHeads) {
    return refuse("num_heads", text(p.num_heads), text("1 to ", kMaxSparseHeads));
  }
  if (traits.schedule == Schedule::swap_ab && p.num_heads > swap_ab_rows(traits.kv, traits.d_qk)) {
    return refuse(
        "num_heads", text(p.num_heads),
        text("1 to ", swap_ab_rows(traits.kv, traits.d_qk), "; more take schedule rows_m64"));
  }
  MLA_TRY(describe_shape({p.device, tokens, 1, p.num_heads, 0, false}, &params->shape));
  params->shape.parts = std::min(params->shape.parts, kMaxParts);
  return {};
}

Status set_plan(int64_t max_splits, Params* params) {
  const int64_t requests = params->shape.batch;
  const int64_t blocks = ceil_div(params->capacity, kTileTokens);
  if (UniformPlan::line(requests, blocks) > UniformPlan::kLongest) {
    return refuse("indices", text(requests, " query tokens with ", params->capacity, " each"),
                  text("fewer than 2^30 blocks of ", kTileTokens, " in all"));
  }
  params->uniform_plan =
      UniformPlan(requests, blocks, params->shape.parts, max_splits, params->shape.rows);
  params->combines = params->uniform_plan.splits();
  return {};
}

TokenView tokens(void* data, int64_t b, int64_t s, int64_t h, int64_t q_len) {
  return {data, {b, s, h}, Divisor(static_cast<uint32_t>(std::max<int64_t>(q_len, 1)))};
}

void set_query(const Problem& p, const Traits& traits, Params* params) {
  auto* const query = &params->query;
  query->latent =
      tokens(p.q_latent, p.q_latent_stride_b, p.q_latent_stride_s, p.q_latent_stride_h, p.q_len);
  query->rope = tokens(p.q_rope, p.q_rope_stride_b, p.q_rope_stride_s, p.q_rope_stride_h, p.q_len);
  query->map_heads = params->shape.heads;
  bool has_strides = true;
  query->is_aligned_to_16 = true;
  const bool has_rope = traits.format().rope > 0;
  for (const TokenView& view : {query->latent, has_rope ? query->rope : query->latent}) {
    const auto& stride = view.stride;
    query->is_aligned_to_16 &= is_aligned_to_16_bytes(
        view.data, traits.q,
        {{stride[0], p.batch}, {stride[1], p.q_len}, {stride[2], p.num_heads}});
    has_strides &= (p.batch <= 1 || stride[0] > 0) && (p.q_len <= 1 || stride[1] > 0) &&
                   (p.num_heads <= 1 || stride[2] > 0);
  }
  // A warp copies rows with strides of 0, which a rope part of zeros has.
  query->by_tma = traits.schedule == Schedule::rows_m64 && query->is_aligned_to_16 && has_strides;
}

// A cache and what is selected of it.
struct Source {
  const CacheFormat* format;
  const char* name;
  const char* indices_name;
  int64_t num_pages;
  int64_t page_size;
  SelectedKvView view;

  int64_t slots() const { return saturating_product({num_pages, page_size}); }
};

Source source_of(const Problem& p, const CacheFormat& format, const char* name,
                 const char* indices_name) {
  return {&format,
          name,
          indices_name,
          p.num_pages,
          p.page_size,
          {{p.kv_latent, p.kv_rope, p.kv_latent_stride_page, p.kv_latent_stride_token,
            p.kv_rope_stride_page, p.kv_rope_stride_token},
           {},
           0,
           static_cast<const int32_t*>(p.indices),
           {p.indices_stride_b, p.indices_stride_s},
           static_cast<const int32_t*>(p.topk_length),
           {p.topk_length_stride_b, p.topk_length_stride_s},
           static_cast<int32_t>(p.topk)}};
}

Source main_source(const Problem& p, const Traits& traits, const Context& context) {
  return source_of(p, traits.format(), context.kv, "indices");
}

Source extra_source(const Problem& p, const Traits& traits, const Context& context) {
  return source_of(as_extra(p), traits.second_format(), context.extra_kv, "extra_indices");
}

// The kernel counts the offsets of rows of bytes in 16 bytes, with 32 bits, and those of scales
// that follow the rows of their page in 8 bytes. The greatest number stands for no row.
Status check_reach(const Source& source) {
  const CacheFormat& format = *source.format;
  const bool of_page = format.scale_place == ScalePlace::page;
  const int64_t most_bytes = (int64_t{1} << (of_page ? 35 : 36)) - format.token_bytes;
  const SelectedKvView& view = source.view;
  const int64_t of_pages = saturating_product({source.num_pages - 1, view.latent_stride_page});
  const int64_t of_tokens = saturating_product({source.page_size - 1, view.latent_stride_token});
  if (of_pages < most_bytes && of_tokens < most_bytes - of_pages) return {};
  return refuse(source.name,
                text(source.num_pages, " pages, ", view.latent_stride_page, " bytes apart, of ",
                     source.page_size, " rows, ", view.latent_stride_token, " bytes apart"),
                text("rows within 2^", of_page ? 35 : 36, " bytes"));
}

Status set_view(const Source& source, SelectedKvView* to) {
  const CacheFormat& format = *source.format;
  MLA_TRY(check_page_strides(source.name, format, source.num_pages, source.page_size,
                             source.view.latent_stride_page, source.view.latent_stride_token));
  *to = source.view;
  if (format.scale_place == ScalePlace::page) to->latent_stride_token = format.row_bytes;
  const int64_t slots = source.slots();
  if (slots > kMaxInt || source.page_size > kMaxInt) {
    return refuse(source.name, text(source.num_pages, " pages of ", source.page_size),
                  "fewer than 2^31 slots");
  }
  to->slots = static_cast<int32_t>(slots);
  to->page_size = Divisor(static_cast<uint32_t>(std::max<int64_t>(source.page_size, 1)));
  for (const int64_t stride : {to->latent_stride_page, to->latent_stride_token,
                               to->rope_stride_page, to->rope_stride_token}) {
    if (stride < 0) {
      return Status::error(MLA_STRIDE, source.name, text("a stride of ", stride), "0 or more");
    }
  }
  MLA_TRY(check_aligned_to_16_bytes(
      source.name, to->latent, format.dtype,
      {{to->latent_stride_page, source.num_pages}, {to->latent_stride_token, source.page_size}}));
  if (format.has_rope_view()) {
    return check_aligned_to_16_bytes(
        source.name, to->rope, format.dtype,
        {{to->rope_stride_page, source.num_pages}, {to->rope_stride_token, source.page_size}});
  }
  return format.is_bytes && slots > 0 ? check_reach(source) : Status();
}

}  // namespace

Status describe(const Problem& p, const Traits& traits, const Context& context, Params* params) {
  *params = {};
  MLA_TRY(check_shapes(p, context));
  MLA_TRY(set_shape(p, traits, params));
  MLA_TRY(set_scales(p, traits, params));
  set_query(p, traits, params);
  MLA_TRY(set_view(main_source(p, traits, context), &params->main));
  MLA_TRY(set_view(extra_source(p, traits, context), &params->extra));
  const auto main_end = static_cast<int32_t>(round_up(p.topk, kTileTokens));
  const bool has_extra = params->extra.topk > 0;
  params->extra_begins = has_extra ? main_end : static_cast<int32_t>(kMaxInt);
  params->capacity = has_extra ? main_end + params->extra.topk : params->main.topk;
  params->out = tokens(p.out, p.out_stride_b, p.out_stride_s, p.out_stride_h, p.q_len);
  const std::initializer_list<Stride> out_strides = {
      {p.out_stride_b, p.batch}, {p.out_stride_s, p.q_len}, {p.out_stride_h, p.num_heads}};
  params->out_is_aligned_to_4 = is_aligned_to_4_elements(p.out, traits.out, out_strides);
  params->out_is_aligned_to_16 = is_aligned_to_16_bytes(p.out, traits.out, out_strides);
  params->lse = tokens(p.lse, p.lse_stride_b, p.lse_stride_s, p.lse_stride_h, p.q_len);
  params->max_logits = tokens(p.max_logits, p.max_logits_stride_b, p.max_logits_stride_s,
                              p.max_logits_stride_h, p.q_len);
  params->sink = static_cast<const float*>(p.attn_sink);
  params->sink_stride = static_cast<int32_t>(context.sink_stride);
  return set_plan(p.max_splits, params);
}

Status check_tensors(const Problem& p, const Traits& traits, const Context& context) {
  const CacheFormat& format = traits.format();
  const auto check_cache = [&](const Source& source) {
    const int64_t slots = source.slots();
    return check_present(
        {{source.indices_name, source.view.indices, source.view.topk},
         {source.name, source.view.latent, slots},
         {source.name, source.view.rope, source.format->has_rope_view() ? slots : 0}});
  };
  MLA_TRY(
      check_present({{"q", p.q_latent, 1}, {"q", p.q_rope, format.rope > 0}, {"out", p.out, 1}}));
  MLA_TRY(check_cache(main_source(p, traits, context)));
  return p.extra_topk == 0 ? Status() : check_cache(extra_source(p, traits, context));
}

int64_t workspace_bytes(const Params& params) {
  if (!params.combines) return 0;
  // A row has its share of the fragments, an LSE and a greatest logit.
  constexpr int64_t kRowBytes = sizeof(Fragments) / kFragmentRows + 2 * sizeof(float);
  const Shape& shape = params.shape;
  return UniformPlan::max_partials(shape.parts) * shape.padded_rows() * kRowBytes +
         shape.blocks() * static_cast<int64_t>(sizeof(uint32_t));
}

void set_workspace(void* workspace, Params* params) {
  const int64_t rows = params->shape.padded_rows();
  const int64_t all = UniformPlan::max_partials(params->shape.parts) * rows;
  auto* const fragments = static_cast<Fragments*>(workspace);
  auto* const lse = reinterpret_cast<float*>(fragments + all / kFragmentRows);
  params->partial_max_logits = lse + all;
  params->partials = {fragments, lse, static_cast<int32_t>(rows),
                      reinterpret_cast<uint32_t*>(lse + 2 * all)};
}

Status plan_without_splits(Params* params) { return set_plan(1, params); }

Status encode_maps(const Traits& traits, Params* params) {
  auto& query = params->query;
  if (!query.by_tma) return {};
  const int64_t q_len = query.latent.q_len.value();
  return encode_query_maps(
      {params->shape.batch / q_len, q_len, params->shape.num_heads, query.latent.data,
       query.latent.stride, query.rope.data, query.rope.stride, traits.format().latent,
       traits.format().rope, kTileRows},
      traits.q, &query.latent_map, &query.rope_map);
}

}  // namespace mla::sm90::sparse_decode
