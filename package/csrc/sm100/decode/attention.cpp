#include "sm100/decode/attention.h"

#include <cmath>
#include <limits>

#include "common/checks.h"
#include "cuda/device.h"
#include "sm100/decode/splits.h"

namespace mla::sm100 {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int64_t kCopyBytes = 16;

// Without a limit of the caller's, a batch-invariant row may have this many parts.
constexpr int64_t kInvariantSplits = 8;

int64_t align(int64_t offset) { return ceil_div<int64_t>(offset, 256) * 256; }

Status refuse(const char* argument, const std::string& got, const std::string& accepts) {
  return Status::error(MLA_UNSUPPORTED, argument, got, accepts);
}

Status choose_splits(const Sizes& sizes, const Traits& traits, Attention* attention) {
  const int64_t rows = attention->shape.rows;
  int64_t most = sizes.max_splits;
  if (traits.schedule == Schedule::persistent) {
    if (most > 1) {
      return refuse("max_splits", text(most),
                    "0 or 1: the persistent scheduler is not safe with KV splits");
    }
    most = 1;
  } else if (most == 0 && sizes.batch_invariant) {
    most = kInvariantSplits;
  } else if (most == 0) {
    most = most_splits(rows, attention->sm_count);
  }
  if (most > kMaxSplits) return refuse("max_splits", text(most), text("0 to ", kMaxSplits));
  if (rows * most >= kMaxPartialRows) {
    return refuse(
        "batch", text(rows, " query tokens in up to ", most, " splits"),
        text("fewer than ", kMaxPartialRows, " parts: the kernel counts them in 32 bits"));
  }
  attention->shape.most_splits = static_cast<int32_t>(most);
  return {};
}

// Whether batch and token are one dimension.
bool collapses(const int64_t (&stride)[3], int32_t q_len) {
  return q_len == 1 || stride[0] == q_len * stride[1];
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kCopyBytes == 0; }

}  // namespace

Status set_shape(const Sizes& sizes, const Traits& traits, Attention* attention) {
  MLA_TRY(check_extents({{"batch", sizes.batch}, {"q_len", sizes.q_len}}));
  if (sizes.num_heads < 1 || sizes.num_heads > kHeads) {
    return refuse("num_heads", text(sizes.num_heads), text("1 to ", kHeads));
  }
  const int64_t rows = saturating_product({sizes.batch, sizes.q_len});
  if (rows >= kMaxPartialRows) {
    return refuse("batch", text(rows, " query tokens"), text("fewer than ", kMaxPartialRows));
  }
  MLA_TRY(cuda::sm_count(attention->device, &attention->sm_count));
  attention->shape.rows = static_cast<int32_t>(rows);
  attention->shape.q_len = static_cast<int32_t>(sizes.q_len);
  attention->shape.num_heads = static_cast<int32_t>(sizes.num_heads);
  return choose_splits(sizes, traits, attention);
}

Status set_scales(const Scales& scales, const Traits& traits, Attention* attention) {
  MLA_TRY(check_finite({{"softmax_scale", scales.softmax},
                        {"q_scale", scales.q},
                        {"kv_scale", scales.kv},
                        {"out_scale", scales.out}}));
  if (traits.q != DType::e4m3 && scales.q != 1) {
    return Status::error(MLA_RANGE, "q_scale", text(scales.q), "1 for a q that is not e4m3");
  }
  if (traits.kv != DType::e4m3 && scales.kv != 1) {
    return Status::error(MLA_RANGE, "kv_scale", text(scales.kv), "1 for a cache that is not e4m3");
  }
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
               const int64_t (&rope_stride)[3], DType dtype, Attention* attention) {
  QueryPacking& query = attention->query;
  query.element_bytes = static_cast<int32_t>(element_bytes(dtype));
  query.latent = latent;
  query.rope = rope;
  for (int i = 0; i < 3; ++i) {
    query.latent_stride[i] = latent_stride[i] * query.element_bytes;
    query.rope_stride[i] = rope_stride[i] * query.element_bytes;
  }
}

Status check_kv(const KvView& kv, DType dtype) {
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

Status check_results(const Attention& attention) {
  const RowShape& shape = attention.shape;
  const RowResults& results = attention.results;
  if (shape.num_heads < kHeads || results.out == nullptr) return {};
  const int64_t row_stride = results.out_stride[shape.q_len == 1 ? 0 : 1];
  const bool dense = collapses(results.out_stride, shape.q_len) &&
                     (shape.rows == 1 || row_stride == kHeads * kLatent);
  if (dense && results.out_stride[2] == kLatent && is_aligned(results.out)) return {};
  return Status::error(MLA_STRIDE, "out", "a strided or unaligned tensor",
                       "a contiguous one at a multiple of 16: 128 heads are written in place");
}

bool reads_query_in_place(const Attention& attention) {
  const QueryPacking& query = attention.query;
  if (attention.shape.num_heads != kHeads || query.latent == nullptr) return false;
  const int32_t q_len = attention.shape.q_len;
  if (!collapses(query.latent_stride, q_len) || !collapses(query.rope_stride, q_len)) return false;
  if (!is_aligned(query.latent) || !is_aligned(query.rope)) return false;
  for (const auto& strides : {query.latent_stride, query.rope_stride}) {
    for (int i = 0; i < 3; ++i) {
      if (strides[i] < 0 || strides[i] % kCopyBytes != 0) return false;
    }
    if (strides[2] == 0) return false;
  }
  return true;
}

bool writes_lse_in_place(const Attention& attention) {
  const RowResults& results = attention.results;
  return results.lse != nullptr && attention.shape.num_heads == kHeads &&
         attention.shape.q_len == 1 && results.lse_stride[2] == 1 &&
         (attention.shape.rows == 1 || results.lse_stride[0] == kHeads);
}

Status layout(const Attention& attention, Layout* layout) {
  const int64_t rows = attention.shape.rows;
  const int64_t query_bytes = attention.query.element_bytes;
  const int64_t splits = attention.shape.most_splits;
  const RowSource& source = attention.source;
  layout->packs_query = !reads_query_in_place(attention);
  layout->unpacks = attention.shape.num_heads < kHeads;
  layout->table_stride = 0;
  if (source.entry_tokens > 0 && source.width > 0) {
    const int64_t tokens = ceil_div<int64_t>(source.capacity, kTileTokens) * kTileTokens;
    layout->table_stride = ceil_div<int64_t>(tokens, source.entry_tokens);
    if (saturating_product({layout->table_stride, rows}) > kMaxInt) {
      return refuse("block_table", text(rows, " rows of ", layout->table_stride, " entries"),
                    "fewer than 2^31 entries: the kernel counts them in 32 bits");
    }
  }
  layout->arrays = 0;
  layout->table = align(4 * rows * int64_t{sizeof(int32_t)});
  layout->query = align(layout->table + rows * layout->table_stride * int64_t{sizeof(int32_t)});
  layout->out =
      align(layout->query + (layout->packs_query ? rows * kHeads * kHeadDim * query_bytes : 0));
  layout->lse = align(layout->out + (layout->unpacks ? rows * kHeads * kLatent * 2 : 0));
  layout->gathered = align(layout->lse + rows * kHeads * int64_t{sizeof(float)});
  layout->partial = align(layout->gathered +
                          (attention.gathers ? rows * layout->table_stride * kHeadDim * 2 : 0));
  const int64_t partial_floats = splits > 1 ? rows * splits * kHeads * (kLatent + 1) : 0;
  layout->bytes = layout->partial + partial_floats * int64_t{sizeof(float)};
  return {};
}

Status launch_rows(const Attention& attention, const Layout& layout, void* workspace,
                   cudaStream_t stream) {
  QueryPacking query = attention.query;
  query.packed = layout.packs_query ? static_cast<char*>(workspace) + layout.query : nullptr;
  return prepare_rows(attention.shape, attention.source, row_arrays(attention, layout, workspace),
                      query, attention.results, stream);
}

RowArrays row_arrays(const Attention& attention, const Layout& layout, void* workspace) {
  char* const base = static_cast<char*>(workspace);
  int32_t* const arrays = reinterpret_cast<int32_t*>(base + layout.arrays);
  const int64_t rows = attention.shape.rows;
  int32_t* const table =
      layout.table_stride > 0 ? reinterpret_cast<int32_t*>(base + layout.table) : nullptr;
  return {arrays, arrays + rows, arrays + 2 * rows, arrays + 3 * rows, table, layout.table_stride};
}

}  // namespace mla::sm100
