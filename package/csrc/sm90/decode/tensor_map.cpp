#include "sm90/decode/tensor_map.h"

#include <algorithm>

#include "cuda/device.h"

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

// Rows of `columns` elements in outer dimensions; a box has one chunk of each row.
template <size_t kOuter>
Status encode(const char* name, const void* data, int columns, const Dimension (&outer)[kOuter],
              DType dtype, CUtensorMap* map) {
  static const cuda::DriverFunction<Encode> encode_tiled("cuTensorMapEncodeTiled", 12000);
  const int64_t bytes = static_cast<int64_t>(element_bytes(dtype));
  cuuint64_t extents[kOuter + 1] = {static_cast<cuuint64_t>(columns)};
  cuuint64_t strides[kOuter];
  cuuint32_t box[kOuter + 1] = {kChunk};
  cuuint32_t steps[kOuter + 1] = {1};
  for (size_t i = 0; i < kOuter; ++i) {
    extents[i + 1] = static_cast<cuuint64_t>(outer[i].extent);
    // Of one row, any stride would do, but the driver might refuse it.
    strides[i] =
        static_cast<cuuint64_t>((outer[i].extent == 1 ? columns : outer[i].stride) * bytes);
    box[i + 1] = static_cast<cuuint32_t>(outer[i].box);
    steps[i + 1] = 1;
  }
  // Codes are read by threads, in order; the others by tensor cores.
  const bool is_code = dtype == DType::e4m3;
  const CUresult result =
      encode_tiled(map,
                   is_code                ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                   : dtype == DType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                          : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                   kOuter + 1, const_cast<void*>(data), extents, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE,
                   is_code ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return Status::error(
      MLA_STRIDE, name,
      text("extents and strides that the driver refuses with error ", static_cast<int>(result)),
      "strides below 2^40 bytes");
}

Status encode_kv(const KvView& kv, DType dtype, Params* params) {
  MLA_TRY(encode("kv_cache", kv.latent, kLatent,
                 {{kv.page_size, kv.latent_stride_token, kTileTokens},
                  {kv.num_pages, kv.latent_stride_page, 1}},
                 dtype, &params->latent_map));
  return encode(
      "kv_cache", kv.rope, kRope,
      {{kv.page_size, kv.rope_stride_token, kTileTokens}, {kv.num_pages, kv.rope_stride_page, 1}},
      dtype, &params->rope_map);
}

Status encode_query(const Shape& shape, DType dtype, Query* query) {
  const int heads = std::min(shape.num_heads, kTileRows);
  const auto encode_rows = [&](const RowView& rows, int columns, CUtensorMap* map) {
    return encode("q", rows.data, columns,
                  {{shape.num_heads, rows.stride[2], heads},
                   {shape.q_len, rows.stride[1], kTileRows / heads},
                   {shape.batch, rows.stride[0], 1}},
                  dtype, map);
  };
  MLA_TRY(encode_rows(query->latent, kLatent, &query->latent_map));
  return encode_rows(query->rope, kRope, &query->rope_map);
}

}  // namespace

Status encode_maps(const Traits& traits, Params* params) {
  if (traits.load == Load::tma) MLA_TRY(encode_kv(params->kv, traits.kv, params));
  return params->query.by_tma ? encode_query(params->shape, traits.q, &params->query) : Status();
}

}  // namespace mla::sm90
