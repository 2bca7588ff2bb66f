#include <algorithm>
#include <cmath>

#include "common/arithmetic.h"
#include "common/dtype.h"
#include "cuda/device.h"
#include "cuda/pack.cuh"
#include "sm100/cutlass_mla/batch_rows.h"
#include "sm100/cutlass_mla/split_heuristic.h"

namespace mla::sm100 {
namespace batch_rows {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kHeadsPerBlock = 8;  // heads whose queries or results a block copies

// The request of a row, and how many of its query tokens are newer. Bounds come from the caller's
// device memory: whatever they are, the request is one of those that exist.
struct RowOwner {
  int64_t request;  // -1: no request has the row
  int64_t newer;

  __device__ RowOwner(const RowShape& shape, const RowSource& source, int64_t b, int64_t s)
      : request(b), newer(shape.q_len - 1 - s) {
    if (source.query_bounds == nullptr) return;
    int32_t low = 0, high = source.requests;  // the last request that begins at or before the row
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      (source.query_bounds[middle] <= s ? low : high) = middle;
    }
    const bool has_request =
        source.requests > 0 && source.query_bounds[low] <= s && s < source.query_bounds[low + 1];
    request = has_request ? low : -1;
    newer = has_request ? source.query_bounds[low + 1] - 1 - s : 0;
  }
};

// Returns how many tokens or entries of one cache a row may attend to, by the stated lengths.
__device__ int32_t stated_tokens(const RowEntries& entries, int64_t request, int64_t s) {
  if (entries.lengths == nullptr) return static_cast<int32_t>(entries.capacity);
  const int64_t stated =
      entries.lengths[request * entries.lengths_stride_b + s * entries.lengths_stride_s];
  return static_cast<int32_t>(min(max(stated, int64_t{0}), entries.capacity));
}

// The same, by all that limits a row of the first cache.
__device__ int32_t row_limit(const RowOwner& owner, const RowSource& source, int64_t b, int64_t s) {
  if (owner.request < 0) return 0;
  int64_t tokens = stated_tokens(source.main, owner.request, s);
  if (source.token_lengths != nullptr) {
    const int64_t stated =
        source.token_lengths[b * source.token_lengths_stride_b + s * source.token_lengths_stride_s];
    return static_cast<int32_t>(min(max(stated, int64_t{0}), tokens));
  }
  if (source.causal) tokens = max(tokens - owner.newer, int64_t{0});
  return static_cast<int32_t>(tokens);
}

// A row of the table as it is filled.
struct TableRow {
  int32_t* entries;
  int32_t kept;    // entries that it has
  int32_t tokens;  // tokens of those
};

// Moves the entries of `tokens` tokens that exist behind those that the row has, in their order.
__device__ void append(const RowSource& source, const int32_t* entries, int64_t limit,
                       int32_t tokens, TableRow* row) {
  __shared__ int32_t warp_counts[kWarps];
  __shared__ int32_t lost_tokens;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int32_t used = ceil_div(tokens, source.entry_tokens);
  if (threadIdx.x == 0) lost_tokens = 0;
  for (int32_t first = 0; first < used; first += kThreads) {
    const int32_t i = first + static_cast<int32_t>(threadIdx.x);
    const int64_t entry = i < used ? entries[i] : -1;
    const bool present = entry >= 0 && entry < limit;
    const unsigned mask = __ballot_sync(~0u, present);
    if (lane == 0) warp_counts[warp] = __popc(mask);
    __syncthreads();
    int32_t at = row->kept + __popc(mask & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) at += warp_counts[w];
      row->kept += warp_counts[w];
    }
    if (present) {
      row->entries[at] = static_cast<int32_t>(entry / source.page_size * source.page_units +
                                              entry % source.page_size * source.token_units);
    } else if (i < used) {
      atomicAdd(&lost_tokens, min(source.entry_tokens, tokens - i * source.entry_tokens));
    }
    __syncthreads();
  }
  __syncthreads();
  row->tokens += tokens - lost_tokens;
  __syncthreads();  // before another call writes what this one reads
}

// Pads the last tile with an entry of the row, because the kernel loads whole tiles.
__device__ void pad(const RowSource& source, const TableRow& row) {
  const int32_t padded = tile_count(row.tokens) * (kTileTokens / source.entry_tokens);
  const int32_t padding = row.kept > 0 ? row.entries[0] : 0;
  for (int i = row.kept + static_cast<int>(threadIdx.x); i < padded; i += kThreads) {
    row.entries[i] = padding;
  }
}

// What a row has: up to 128 heads of a query token.
struct RowPlace {
  int64_t b;
  int64_t s;
  int first_head;
  int heads;

  __device__ RowPlace(const RowShape& shape, int64_t row)
      : b(row / shape.head_tiles / shape.q_len),
        s(row / shape.head_tiles % shape.q_len),
        first_head(static_cast<int>(row % shape.head_tiles) * kHeads),
        heads(min(kHeads, shape.num_heads - first_head)) {}

  // The element of its first head, in a tensor with such strides of batch, token and head.
  __device__ int64_t offset(const int64_t (&stride)[3]) const {
    return b * stride[0] + s * stride[1] + first_head * stride[2];
  }
};

// The heads of a row that a block copies, which may be none.
struct Heads {
  int first;
  int count;

  __device__ Heads(int group, const RowPlace& place)
      : first(group * kHeadsPerBlock), count(max(min(kHeadsPerBlock, place.heads - first), 0)) {}
};

template <class Word>
__device__ void copy_heads(const char* from, int64_t from_stride, char* to, int64_t to_stride,
                           const Heads& heads, int bytes) {
  const int words = bytes / static_cast<int>(sizeof(Word));
  for (int i = threadIdx.x; i < heads.count * words; i += kThreads) {
    const int h = heads.first + i / words;
    const int w = i % words;
    reinterpret_cast<Word*>(to + h * to_stride)[w] =
        reinterpret_cast<const Word*>(from + h * from_stride)[w];
  }
}

template <class Word>
__device__ void clear_heads(char* to, int64_t stride, const Heads& heads, int bytes) {
  const int words = bytes / static_cast<int>(sizeof(Word));
  for (int i = threadIdx.x; i < heads.count * words; i += kThreads) {
    reinterpret_cast<Word*>(to + (heads.first + i / words) * stride)[i % words] = Word{};
  }
}

template <class Word>
__device__ void pack_query(const QueryPacking& query, const Heads& heads, int64_t row,
                           const RowPlace& place) {
  const int64_t to_stride = query.row_bytes;
  char* to = static_cast<char*>(query.packed) + row * kHeads * to_stride;
  const char* latent = static_cast<const char*>(query.latent) + place.offset(query.latent_stride);
  copy_heads<Word>(latent, query.latent_stride[2], to, to_stride, heads, query.latent_bytes);
  to += query.latent_bytes;
  if (query.rope_bytes > 0) {
    const char* rope = static_cast<const char*>(query.rope) + place.offset(query.rope_stride);
    copy_heads<Word>(rope, query.rope_stride[2], to, to_stride, heads, query.rope_bytes);
    to += query.rope_bytes;
  }
  clear_heads<Word>(to, to_stride, heads, query.row_bytes - query.latent_bytes - query.rope_bytes);
}

__device__ void write_empty(const RowShape& shape, const RowResults& results,
                            const RowPlace& place) {
  uint16_t* out = static_cast<uint16_t*>(results.out) + place.offset(results.out_stride);
  for (int i = threadIdx.x; i < place.heads * shape.d_v; i += kThreads) {
    out[i / shape.d_v * results.out_stride[2] + i % shape.d_v] = 0;
  }
  if (results.lse == nullptr) return;
  float* lse = results.lse + place.offset(results.lse_stride);
  for (int h = threadIdx.x; h < place.heads; h += kThreads) {
    lse[h * results.lse_stride[2]] = -INFINITY;
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads)
    prepare_rows_kernel(RowShape shape, RowSource source, RowArrays arrays, QueryPacking query,
                        RowResults results) {
  const int64_t row = blockIdx.x;
  const RowPlace place(shape, row);
  if (blockIdx.y > 0) {  // the first block of a row decides whether it has tokens
    pack_query<Word>(query, Heads(blockIdx.y - 1, place), row, place);
    return;
  }
  const int64_t b = place.b, s = place.s;
  const RowOwner owner(shape, source, b, s);
  const int64_t request = max(owner.request, int64_t{0});
  int32_t tokens = row_limit(owner, source, b, s);
  if (arrays.table != nullptr) {
    TableRow table = {arrays.table + row * arrays.table_stride, 0, 0};
    const auto append_from = [&](const RowEntries& from, int32_t count) {
      if (from.data == nullptr) return;
      const int32_t* entries = from.data + request * from.stride_b + s * from.stride_s;
      append(source, entries, from.limit, count, &table);
    };
    append_from(source.main, tokens);
    const int32_t of_main = table.tokens;
    append_from(source.extra, stated_tokens(source.extra, request, s));
    pad(source, table);
    tokens = table.tokens;
    if (threadIdx.x == 0) arrays.extra_lengths[row] = tokens - of_main;
  }
  if (threadIdx.x == 0) {
    const int32_t splits = num_splits(tile_count(tokens), shape.max_splits);
    arrays.lengths[row] = tokens;
    arrays.splits[row] = splits;
    arrays.reduction_lengths[row] = max(tokens, 1);
    arrays.reduction_splits[row] = max(splits, 1);
  }
  if (tokens == 0 && owner.request >= 0) write_empty(shape, results, place);
}

// Copies outputs, each scaled by the share that the sink of its head leaves to keys with values.
template <DType kOut, int kAligned>
__device__ void copy_out(const std::byte* from, const float* lse, const float* sink, std::byte* to,
                         int64_t to_stride, const Heads& heads, int d_v) {
  constexpr int kBytes = cuda::kPack * cuda::kElementBytes<kOut>;
  const int packs = d_v / cuda::kPack;
  for (int i = threadIdx.x; i < heads.count * packs; i += kThreads) {
    const int h = heads.first + i / packs;
    const int at = i % packs * kBytes;
    auto pack =
        cuda::load<cuda::RawPack<kOut>, cuda::kVector>(from + int64_t{h} * packs * kBytes + at);
    if (sink != nullptr) {
      const float share = 1 / (1 + expf(sink[h] - lse[h]));
      float values[cuda::kPack];
      cuda::to_fp32<kOut>(pack, values);
      for (float& value : values) value *= share;
      pack = cuda::from_fp32<kOut>(values);
    }
    cuda::store<kAligned>(to + h * to_stride + at, pack);
  }
}

template <DType kOut, int kAligned>
__global__ void __launch_bounds__(kThreads)
    unpack_rows_kernel(RowShape shape, const int32_t* lengths, const void* out, const float* lse,
                       RowResults results) {
  const int64_t row = blockIdx.x;
  if (lengths[row] == 0) return;
  const RowPlace place(shape, row);
  const Heads heads(blockIdx.y, place);
  lse += row * kHeads;
  if (out != nullptr) {
    constexpr int kBytes = cuda::kElementBytes<kOut>;
    copy_out<kOut, kAligned>(
        static_cast<const std::byte*>(out) + row * kHeads * shape.d_v * kBytes, lse,
        results.sink == nullptr ? nullptr : results.sink + place.first_head,
        static_cast<std::byte*>(results.out) + place.offset(results.out_stride) * kBytes,
        results.out_stride[2] * kBytes, heads, shape.d_v);
  }
  if (results.lse != nullptr && threadIdx.x < heads.count) {
    const int h = heads.first + threadIdx.x;
    results.lse[place.offset(results.lse_stride) + h * results.lse_stride[2]] = lse[h];
  }
}

unsigned blocks_of_heads(const RowShape& shape) {
  return static_cast<unsigned>(ceil_div(std::min(shape.num_heads, kHeads), kHeadsPerBlock));
}

bool aligned(const void* data, const int64_t (&stride)[3], int64_t stride_bytes) {
  int64_t bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  for (const int64_t n : stride) bits |= n * stride_bytes;
  return bits % 16 == 0;
}

}  // namespace batch_rows

using namespace batch_rows;

Status prepare_rows(const RowShape& shape, const RowSource& source, const RowArrays& arrays,
                    const QueryPacking& query, const RowResults& results, cudaStream_t stream) {
  const bool wide =
      aligned(query.latent, query.latent_stride, 1) && aligned(query.rope, query.rope_stride, 1);
  const auto kernel = wide                       ? prepare_rows_kernel<uint4>
                      : query.element_bytes == 2 ? prepare_rows_kernel<uint16_t>
                                                 : prepare_rows_kernel<uint8_t>;
  const dim3 grid(shape.rows, 1 + (query.packed == nullptr ? 0 : blocks_of_heads(shape)));
  kernel<<<grid, kThreads, 0, stream>>>(shape, source, arrays, query, results);
  return cuda::check(cudaGetLastError(), "launch of the row kernel");
}

Status unpack_rows(const RowShape& shape, const int32_t* lengths, const void* out, DType dtype,
                   const float* lse, const RowResults& results, cudaStream_t stream) {
  const bool is_aligned = aligned(results.out, results.out_stride, 2);
  const auto kernel = dtype == DType::fp16 ? is_aligned
                                                 ? unpack_rows_kernel<DType::fp16, cuda::kVector>
                                                 : unpack_rows_kernel<DType::fp16, 2>
                      : is_aligned         ? unpack_rows_kernel<DType::bf16, cuda::kVector>
                                           : unpack_rows_kernel<DType::bf16, 2>;
  const dim3 grid(shape.rows, blocks_of_heads(shape));
  kernel<<<grid, kThreads, 0, stream>>>(shape, lengths, out, lse, results);
  return cuda::check(cudaGetLastError(), "launch of the unpacking kernel");
}

}  // namespace mla::sm100
