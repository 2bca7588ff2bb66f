#include "sm100/sparse_decode/problem.h"

#include <algorithm>
#include <numeric>

#include "common/arithmetic.h"
#include "common/checks.h"
#include "mla/conversions.h"

namespace mla::sm100 {
namespace {

using Problem = mla_sparse_decode_problem;

Status check_absent(std::initializer_list<TensorData> tensors) {
  for (const TensorData& tensor : tensors) {
    if (tensor.data != nullptr) {
      return Status::error(MLA_UNSUPPORTED, tensor.name, "a tensor", "none on this arch");
    }
  }
  return {};
}

// The largest stride of which the strides of pages and tokens are multiples, so that a slot is a
// page of one token, at page * `page` + offset * `token` strides.
struct Unit {
  int64_t stride;
  int64_t page;
  int64_t token;

  bool counts_as(const Unit& other) const { return page == other.page && token == other.token; }
};

Unit unit(int64_t stride_page, int64_t stride_token, const Problem& p) {
  // The stride of a dimension of one element does not count.
  if (p.page_size <= 1) stride_token = stride_page;
  if (p.num_pages <= 1) stride_page = stride_token * p.page_size;
  const int64_t stride = std::gcd(stride_page, stride_token);
  if (stride == 0) return {kLatent, 0, 0};  // every slot is the same row
  return {stride, stride_page / stride, stride_token / stride};
}

// Sets KV as pages of one token each.
Status set_paged(const Problem& p, AttentionProblem* attention) {
  const Unit latent = unit(p.kv_latent_stride_page, p.kv_latent_stride_token, p);
  const Unit rope =
      attention->has_rope ? unit(p.kv_rope_stride_page, p.kv_rope_stride_token, p) : latent;
  if (!latent.counts_as(rope)) {
    return Status::error(MLA_STRIDE, "kv_cache",
                         "latent and rope with strides in other proportions",
                         "the same ratio of page stride to token stride in both");
  }
  const int64_t of_pages = saturating_product({p.num_pages, latent.page});
  const int64_t of_tokens = saturating_product({p.page_size, latent.token});
  if (of_pages > kMaxInt || of_tokens > kMaxInt - of_pages) {
    return Status::error(
        MLA_STRIDE, "kv_cache",
        text(p.num_pages, " pages, ", latent.page, " units of ", latent.stride, " elements apart"),
        "fewer than 2^31 units");
  }
  RowSource& source = attention->source;
  source.page_size = static_cast<int32_t>(std::max<int64_t>(p.page_size, 1));
  source.page_units = static_cast<int32_t>(latent.page);
  source.token_units = static_cast<int32_t>(latent.token);
  attention->kv = {{p.kv_latent, p.kv_rope, latent.stride, latent.stride, rope.stride, rope.stride},
                   true,
                   of_pages + of_tokens,
                   1};
  set_keys_without_rope(attention);
  return {};
}

// Sets what a row may select of a cache.
Status set_entries(const Problem& p, const char* name, RowEntries* entries) {
  const int64_t slots = saturating_product({p.num_pages, p.page_size});
  if (slots > kMaxInt || p.topk > kMaxInt / 4) {
    return Status::error(MLA_UNSUPPORTED, name,
                         text(slots, " slots, of which ", p.topk, " are selected"),
                         "fewer than 2^31 slots, of which fewer than 2^29 are selected");
  }
  entries->data = static_cast<const int32_t*>(p.indices);
  entries->stride_b = p.indices_stride_b;
  entries->stride_s = p.indices_stride_s;
  entries->width = p.topk;
  entries->lengths = static_cast<const int32_t*>(p.topk_length);
  entries->lengths_stride_b = p.topk_length_stride_b;
  entries->lengths_stride_s = p.topk_length_stride_s;
  entries->capacity = p.topk;
  entries->limit = slots;
  return {};
}

// Refuses pages whose rows and scales are not where the format has them. An absent cache passes.
Status check_pages(const Problem& p, const char* name, const CacheFormat& format) {
  if (p.kv_latent == nullptr) return {};
  return check_page_strides(name, format, p.num_pages, p.page_size, p.kv_latent_stride_page,
                            p.kv_latent_stride_token);
}

// Sets both caches as what is gathered into rows.
Status set_gathered(const Problem& p, const Traits& traits, AttentionProblem* attention) {
  const Problem extra = as_extra(p);
  MLA_TRY(check_pages(p, "kv_cache", traits.format()));
  MLA_TRY(check_pages(extra, "extra_kv_cache", traits.second_format()));
  attention->gathered_columns = traits.d_qk;
  return set_entries(extra, "extra_kv_cache", &attention->source.extra);
}

}  // namespace

Status describe(const Problem& p, const Traits& traits, AttentionProblem* attention) {
  MLA_TRY(check_extents({{"num_pages", p.num_pages},
                         {"page_size", p.page_size},
                         {"topk", p.topk},
                         {"extra_num_pages", p.extra_num_pages},
                         {"extra_page_size", p.extra_page_size},
                         {"extra_topk", p.extra_topk}}));
  const bool gathers = traits.load == Load::gather;
  MLA_TRY(check_absent({{"max_logits", p.max_logits, 0}}));
  if (!gathers) MLA_TRY(check_absent({{"extra_kv_cache", p.extra_kv_latent, 0}}));
  *attention = {};
  attention->device = p.device;
  MLA_TRY(set_shape({p.batch, p.q_len, p.num_heads, p.max_splits, false}, traits, attention));
  set_query_and_results(p, traits, attention);
  attention->results.sink = static_cast<const float*>(p.attn_sink);
  RowSource& source = attention->source;
  source.entry_tokens = 1;
  source.page_size = 1;
  source.page_units = 1;
  MLA_TRY(set_entries(p, "kv_cache", &source.main));
  if (gathers) MLA_TRY(set_gathered(p, traits, attention));
  attention->has_tokens =
      source.main.limit * source.main.width > 0 || source.extra.limit * source.extra.width > 0;
  if (gathers) return {};
  MLA_TRY(set_paged(p, attention));
  return check_kv(attention->kv, traits.kv);
}

namespace sparse_decode {

Status check_extra(const Problem& p) {
  if (p.extra_indices == nullptr) return {};
  return check_present({{"extra_kv_cache", p.extra_kv_latent,
                         saturating_product({p.extra_num_pages, p.extra_page_size})}});
}

void set_gathered_kv(const WorkspaceLayout& layout, void* workspace, AttentionProblem* attention) {
  uint16_t* const rows =
      reinterpret_cast<uint16_t*>(static_cast<char*>(workspace) + layout.gathered);
  const int64_t columns = attention->gathered_columns;
  const int64_t stride = layout.table_stride * columns;
  attention->kv = {{rows, rows + attention->shape.d_v, stride, columns, stride, columns},
                   false,
                   attention->shape.rows,
                   static_cast<int32_t>(layout.table_stride)};
  set_keys_without_rope(attention);
}

}  // namespace sparse_decode
}  // namespace mla::sm100
