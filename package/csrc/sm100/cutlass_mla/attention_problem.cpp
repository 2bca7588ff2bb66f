#include "sm100/cutlass_mla/attention_problem.h"

#include <cmath>

#include "common/arithmetic.h"
#include "common/checks.h"
#include "cuda/device.h"
#include "sm100/cutlass_mla/split_heuristic.h"

namespace mla::sm100 {
namespace {

constexpr int64_t kCopyBytes = 16;

// A batch-invariant row may have this many splits where the caller sets no limit.
constexpr int64_t kInvariantSplits = 8;

Status refuse(const char* argument, const std::string& got, const std::string& accepts) {
  return Status::error(MLA_UNSUPPORTED, argument, got, accepts);
}

// Sets the splits that a row may have: as the caller says, or as the device has room for.
Status choose_splits(const Sizes& sizes, const Traits& traits, AttentionProblem* attention) {
  const int64_t rows = attention->shape.rows;
  int64_t splits = sizes.max_splits;
  if (traits.schedule == Schedule::persistent) {
    if (splits > 1) {
      return refuse("max_splits", text(splits),
                    "0 or 1: the persistent scheduler is not safe with KV splits");
    }
    splits = 1;
  } else if (splits == 0 && sizes.batch_invariant) {
    splits = kInvariantSplits;
  } else if (splits == 0) {
    splits = num_splits_heuristic(rows, attention->sm_count);
  }
  if (splits > kMaxSplits) return refuse("max_splits", text(splits), text("0 to ", kMaxSplits));
  if (rows * splits >= kMaxPartialRows) {
    return refuse(
        "batch",
        text(rows, " query tokens by tiles of ", kHeads, " heads in up to ", splits, " splits"),
        text("fewer than ", kMaxPartialRows, " parts: the kernel counts them in 32 bits"));
  }
  attention->shape.max_splits = static_cast<int32_t>(splits);
  return {};
}

// Returns whether batch and token collapse into one dimension.
bool collapses(const int64_t (&stride)[3], int32_t q_len) {
  return q_len == 1 || stride[0] == q_len * stride[1];
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kCopyBytes == 0; }

}  // namespace

Status set_shape(const Sizes& sizes, const Traits& traits, AttentionProblem* attention) {
  MLA_TRY(check_extents({{"batch", sizes.batch}, {"q_len", sizes.q_len}}));
  if (sizes.num_heads < 1 || sizes.num_heads > kMaxHeads) {
    return refuse("num_heads", text(sizes.num_heads), text("1 to ", kMaxHeads));
  }
  const int64_t head_tiles = ceil_div(sizes.num_heads, int64_t{kHeads});
  const int64_t rows = saturating_product({sizes.batch, sizes.q_len, head_tiles});
  if (rows >= kMaxPartialRows) {
    return refuse("batch", text(rows, " query tokens by tiles of ", kHeads, " heads"),
                  text("fewer than ", kMaxPartialRows));
  }
  MLA_TRY(cuda::sm_count(attention->device, &attention->sm_count));
  attention->shape.rows = static_cast<int32_t>(rows);
  attention->shape.q_len = static_cast<int32_t>(sizes.q_len);
  attention->shape.num_heads = static_cast<int32_t>(sizes.num_heads);
  attention->shape.head_tiles = static_cast<int32_t>(head_tiles);
  attention->shape.d_v = traits.d_v;
  attention->out_dtype = traits.out;
  attention->has_rope = traits.d_qk > traits.d_v;
  return choose_splits(sizes, traits, attention);
}

Status set_scales(const Scales& scales, const Traits& traits, AttentionProblem* attention) {
  MLA_TRY(check_scales(traits.q, traits.format(), scales));
  attention->softmax_scale = scales.softmax * scales.q * scales.kv;
  attention->out_scale = scales.kv * scales.out;
  if (!(attention->softmax_scale > 0) || !std::isfinite(attention->softmax_scale)) {
    return Status::error(MLA_RANGE, "softmax_scale",
                         text(attention->softmax_scale, ", the scales of q and kv included"),
                         "a positive number: the kernel masks with -inf before it scales");
  }
  return {};
}

void set_query(const void* latent, const int64_t (&latent_stride)[3], const void* rope,
               const int64_t (&rope_stride)[3], const Traits& traits, AttentionProblem* attention) {
  const CacheFormat& format = traits.format();
  QueryPacking& query = attention->query;
  query.element_bytes = static_cast<int32_t>(element_bytes(traits.q));
  query.latent_bytes = format.latent * query.element_bytes;
  query.rope_bytes = format.rope * query.element_bytes;
  query.row_bytes = (traits.d_v + kRope) * query.element_bytes;
  query.latent = latent;
  if (format.rope > 0) query.rope = rope;
  for (int i = 0; i < 3; ++i) {
    query.latent_stride[i] = latent_stride[i] * query.element_bytes;
    if (format.rope > 0) query.rope_stride[i] = rope_stride[i] * query.element_bytes;
  }
}

void set_keys_without_rope(AttentionProblem* attention) {
  if (attention->has_rope) return;
  BatchKvView& kv = attention->kv;
  kv.rope = kv.latent;
  kv.rope_stride_page = kv.latent_stride_page;
  kv.rope_stride_token = kv.latent_stride_token;
}

Status check_kv(const cuda::KvView& kv, DType dtype) {
  const int64_t bytes = static_cast<int64_t>(element_bytes(dtype));
  if (!is_aligned(kv.latent) || !is_aligned(kv.rope)) {
    return Status::error(MLA_ALIGNMENT, "kv_cache", "an address that 16 does not divide",
                         "addresses of latent and rope that are multiples of 16");
  }
  for (const int64_t stride :
       {kv.latent_stride_page, kv.latent_stride_token, kv.rope_stride_page, kv.rope_stride_token}) {
    if (stride < 0 || stride >= (int64_t{1} << 40) / bytes || stride * bytes % kCopyBytes != 0) {
      return Status::error(MLA_STRIDE, "kv_cache", text("a stride of ", stride, " elements"),
                           "multiples of 16 bytes below 2^40");
    }
  }
  return {};
}

bool reads_query_in_place(const AttentionProblem& attention) {
  const QueryPacking& query = attention.query;
  if (attention.shape.num_heads != kHeads || query.latent == nullptr) return false;
  if (query.latent_bytes + query.rope_bytes != query.row_bytes) return false;
  const int32_t q_len = attention.shape.q_len;
  if (!collapses(query.latent_stride, q_len) || !collapses(query.rope_stride, q_len)) return false;
  if (!is_aligned(query.latent) || !is_aligned(query.rope)) return false;
  for (const auto& strides : {query.latent_stride, query.rope_stride}) {
    for (int i = 0; i < 3; ++i) {
      if (strides[i] < 0 || strides[i] % kCopyBytes != 0) return false;
    }
    // A tensor map with strides of 0 has not run on Blackwell.
    if (strides[2] == 0 || (strides[0] == 0 && attention.shape.rows > q_len)) return false;
  }
  return true;
}

bool writes_out_in_place(const AttentionProblem& attention) {
  const RowShape& shape = attention.shape;
  const RowResults& results = attention.results;
  if (shape.num_heads != kHeads || results.out == nullptr || results.sink != nullptr) return false;
  const int64_t row_stride = results.out_stride[shape.q_len == 1 ? 0 : 1];
  const bool has_rows = collapses(results.out_stride, shape.q_len) &&
                        (shape.rows == 1 || row_stride == int64_t{kHeads} * shape.d_v);
  return has_rows && results.out_stride[2] == shape.d_v && is_aligned(results.out);
}

bool writes_lse_in_place(const AttentionProblem& attention) {
  const RowResults& results = attention.results;
  return results.lse != nullptr && attention.shape.num_heads == kHeads &&
         attention.shape.q_len == 1 && results.lse_stride[2] == 1 &&
         (attention.shape.rows == 1 || results.lse_stride[0] == kHeads);
}

}  // namespace mla::sm100
