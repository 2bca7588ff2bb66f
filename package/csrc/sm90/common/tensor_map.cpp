#include "sm90/common/tensor_map.h"

#include <array>
#include <initializer_list>
#include <tuple>
#include <unordered_map>

#include "cuda/device.h"
#include "sm90/common/tile.h"

namespace mla::sm90 {
namespace {

using Encode = CUresult(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                        const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                        CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                        CUtensorMapFloatOOBfill);

struct Dimension {
  int64_t extent;
  int64_t stride;  // elements
  int box;
};

// A map has rows of `columns` elements in outer dimensions. A box has one chunk of each of its
// rows.
struct Rows {
  static constexpr size_t kMaxRank = 5;

  void* data;
  DType dtype;
  CUtensorMapSwizzle swizzle;
  cuuint32_t rank = 1;
  std::array<cuuint64_t, kMaxRank> extents = {};
  std::array<cuuint64_t, kMaxRank - 1> strides = {};  // bytes
  std::array<cuuint32_t, kMaxRank> box = {kChunk};

  Rows(const void* rows, int columns, std::initializer_list<Dimension> outer, DType type,
       CUtensorMapSwizzle how)
      : data(const_cast<void*>(rows)), dtype(type), swizzle(how) {
    const int64_t bytes = static_cast<int64_t>(element_bytes(dtype));
    extents[0] = static_cast<cuuint64_t>(columns);
    for (const Dimension& dimension : outer) {
      extents[rank] = static_cast<cuuint64_t>(dimension.extent);
      // The stride of a single row is never used, but the driver might refuse the caller's.
      strides[rank - 1] =
          static_cast<cuuint64_t>((dimension.extent == 1 ? columns : dimension.stride) * bytes);
      box[rank] = static_cast<cuuint32_t>(dimension.box);
      ++rank;
    }
  }

  auto fields() const { return std::tie(data, dtype, swizzle, rank, extents, strides, box); }
  bool operator==(const Rows& other) const { return fields() == other.fields(); }
};

// The rows of the two maps that a tensor has.
struct TensorRows {
  Rows latent;
  Rows rope;

  bool operator==(const TensorRows& other) const {
    return latent == other.latent && rope == other.rope;
  }
};

// Rope mostly lies where latent does.
struct Hash {
  size_t operator()(const TensorRows& rows) const {
    const Rows& latent = rows.latent;
    uint64_t hash = reinterpret_cast<uintptr_t>(latent.data);
    const auto mix = [&hash](uint64_t word) { hash = (hash ^ word) * 0x9e3779b97f4a7c15; };
    for (const cuuint64_t extent : latent.extents) mix(extent);
    for (const cuuint64_t stride : latent.strides) mix(stride);
    return hash;
  }
};

struct Maps {
  CUtensorMap latent;
  CUtensorMap rope;
};

Status encode(const char* name, const Rows& rows, CUtensorMap* map) {
  static const cuda::DriverFunction<Encode> encode_tiled("cuTensorMapEncodeTiled", 12000);
  constexpr std::array<cuuint32_t, Rows::kMaxRank> kSteps = {1, 1, 1, 1, 1};
  const CUresult result =
      encode_tiled(map,
                   rows.dtype == DType::e4m3   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                   : rows.dtype == DType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                               : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                   rows.rank, rows.data, rows.extents.data(), rows.strides.data(), rows.box.data(),
                   kSteps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, rows.swizzle,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return Status::error(
      MLA_STRIDE, name,
      text("extents and strides that the driver refuses with error ", static_cast<int>(result)),
      "strides below 2^40 bytes");
}

// Tensor cores read boxes in place; but threads read those of e4m3 that they dequantize. `swap_ab`
// wants them swizzled for that, too.
CUtensorMapSwizzle swizzle_of(const Traits& traits) {
  if (traits.kv != DType::e4m3) return CU_TENSOR_MAP_SWIZZLE_128B;
  const bool by_threads =
      traits.schedule == Schedule::rows_m64 && traits.compute == ComputeDType::exact;
  return by_threads ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_64B;
}

// The layers of a step, and the steps, ask for the same maps again and again. A map says what its
// rows say; it neither owns memory nor looks at it, so that it stays right for as long as the
// process lives, whatever comes to lie at the address. Each thread has its own maps: no locks.
Status find_maps(const char* name, const TensorRows& rows, CUtensorMap* latent, CUtensorMap* rope) {
  constexpr size_t kMost = 512;
  thread_local std::unordered_map<TensorRows, Maps, Hash> known;
  auto found = known.find(rows);
  if (found == known.end()) {
    Maps maps;
    MLA_TRY(encode(name, rows.latent, &maps.latent));
    MLA_TRY(encode(name, rows.rope, &maps.rope));
    if (known.size() >= kMost) known.clear();
    found = known.emplace(rows, maps).first;
  }
  *latent = found->second.latent;
  *rope = found->second.rope;
  return {};
}

}  // namespace

Status encode_kv_maps(const PagedKvView& kv, const Traits& traits, CUtensorMap* latent,
                      CUtensorMap* rope) {
  const auto rows = [&](const void* data, int columns, int chunks, int64_t token, int64_t page) {
    const auto of_rows = [&](int row, std::initializer_list<Dimension> outer) {
      return Rows(data, row, outer, traits.kv, swizzle_of(traits));
    };
    const auto page_size = static_cast<int32_t>(kv.page_size.value());
    const Dimension pages = {kv.num_pages, page, 1};
    if (traits.kv == DType::e4m3) {
      return of_rows(columns, {{page_size, token, kv.box_tokens}, pages});
    }
    const Dimension of_chunks = {columns / kChunk, kChunk, chunks};
    if (!kv.is_in_groups) {
      return of_rows(kChunk, {{page_size, token, kv.box_tokens}, of_chunks, {1, 0, 1}, pages});
    }
    return of_rows(kChunk,
                   {{kSwizzleRows, token, kSwizzleRows},
                    of_chunks,
                    {page_size / kSwizzleRows, token * kSwizzleRows, kv.box_tokens / kSwizzleRows},
                    pages});
  };
  const CacheFormat& format = traits.format();
  const Rows of_latent =
      rows(kv.latent, format.latent, kHalfChunks, kv.latent_stride_token, kv.latent_stride_page);
  if (format.rope == 0) return find_maps("kv_cache", {of_latent, of_latent}, latent, rope);
  return find_maps(
      "kv_cache",
      {of_latent, rows(kv.rope, format.rope, 1, kv.rope_stride_token, kv.rope_stride_page)}, latent,
      rope);
}

Status encode_query_maps(const QueryRows& q, DType dtype, CUtensorMap* latent, CUtensorMap* rope) {
  const auto rows = [&](const void* data, int columns, const int64_t (&stride)[3]) {
    return Rows(data, columns,
                {{q.num_heads, stride[2], q.box_heads},
                 {q.q_len, stride[1], kTileRows / q.box_heads},
                 {q.batch, stride[0], 1}},
                dtype, CU_TENSOR_MAP_SWIZZLE_128B);
  };
  const Rows of_latent = rows(q.latent, q.latent_columns, q.latent_stride);
  if (q.rope_columns == 0) return find_maps("q", {of_latent, of_latent}, latent, rope);
  return find_maps("q", {of_latent, rows(q.rope, q.rope_columns, q.rope_stride)}, latent, rope);
}

}  // namespace mla::sm90
