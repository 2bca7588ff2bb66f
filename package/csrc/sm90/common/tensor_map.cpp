#include "sm90/common/tensor_map.h"

#include <algorithm>
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

struct Hash {
  size_t operator()(const Rows& rows) const {
    uint64_t hash = reinterpret_cast<uintptr_t>(rows.data);
    const auto mix = [&hash](uint64_t word) { hash = (hash ^ word) * 0x9e3779b97f4a7c15; };
    for (const cuuint64_t extent : rows.extents) mix(extent);
    for (const cuuint64_t stride : rows.strides) mix(stride);
    return hash;
  }
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

// Tensor cores read 16-bit boxes in place; threads read those of e4m3 and dequantize them.
CUtensorMapSwizzle swizzle_of(const Traits& traits) {
  if (traits.schedule == Schedule::swap_ab) return CU_TENSOR_MAP_SWIZZLE_64B;
  return traits.kv == DType::e4m3 ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B;
}

// The layers of a step, and the steps, ask for the same maps again and again. A map says what its
// rows say; it neither owns memory nor looks at it, so that it stays right for as long as the
// process lives, whatever comes to lie at the address. Each thread has its own maps: no locks.
Status find_map(const char* name, const Rows& rows, CUtensorMap* map) {
  constexpr size_t kMaxMaps = 1024;
  thread_local std::unordered_map<Rows, CUtensorMap, Hash> maps;
  const auto known = maps.find(rows);
  if (known != maps.end()) {
    *map = known->second;
    return {};
  }
  MLA_TRY(encode(name, rows, map));
  if (maps.size() >= kMaxMaps) maps.clear();
  maps.emplace(rows, *map);
  return {};
}

}  // namespace

Status encode_kv_maps(const PagedKvView& kv, const Traits& traits, CUtensorMap* latent,
                      CUtensorMap* rope) {
  const auto find = [&](const void* data, int columns, int chunks, int64_t token, int64_t page,
                        CUtensorMap* map) {
    const auto of_rows = [&](int columns, std::initializer_list<Dimension> outer) {
      return find_map("kv_cache", {data, columns, outer, traits.kv, swizzle_of(traits)}, map);
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
  MLA_TRY(find(kv.latent, kLatent, kLatentChunks / 2, kv.latent_stride_token, kv.latent_stride_page,
               latent));
  return find(kv.rope, kRope, 1, kv.rope_stride_token, kv.rope_stride_page, rope);
}

Status encode_query_maps(const QueryRows& q, DType dtype, CUtensorMap* latent, CUtensorMap* rope) {
  const int heads = static_cast<int>(std::min<int64_t>(q.num_heads, kTileRows));
  const auto find = [&](const void* data, int columns, const int64_t (&stride)[3],
                        CUtensorMap* map) {
    return find_map("q",
                    {data,
                     columns,
                     {{q.num_heads, stride[2], heads},
                      {q.q_len, stride[1], kTileRows / heads},
                      {q.batch, stride[0], 1}},
                     dtype,
                     CU_TENSOR_MAP_SWIZZLE_128B},
                    map);
  };
  MLA_TRY(find(q.latent, kLatent, q.latent_stride, latent));
  return find(q.rope, kRope, q.rope_stride, rope);
}

}  // namespace mla::sm90
