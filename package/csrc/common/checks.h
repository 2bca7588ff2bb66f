// Checks that every payload makes of a problem.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "common/buffer.h"
#include "common/cache_format.h"
#include "common/status.h"
#include "common/text.h"

namespace mla {

struct Extent {
  const char* name;
  int64_t value;
};

inline Status check_extents(std::initializer_list<Extent> extents) {
  for (const Extent& extent : extents) {
    if (extent.value < 0) {
      return Status::error(MLA_SHAPE, extent.name, text(extent.value), "0 or more");
    }
  }
  return {};
}

// Returns the product of non-negative factors, or the largest int64 where that is less.
inline int64_t saturating_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  bool overflowed = false;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    overflowed |= __builtin_mul_overflow(product, factor, &product);
  }
  return overflowed ? std::numeric_limits<int64_t>::max() : product;
}

struct TensorData {
  const char* name;
  const void* data;
  int64_t rows;  // tensors without elements may have no memory
};

inline Status check_present(std::initializer_list<TensorData> tensors) {
  for (const TensorData& tensor : tensors) {
    if (tensor.data == nullptr && tensor.rows > 0) {
      return Status::error(MLA_SHAPE, tensor.name, "null", "a tensor");
    }
  }
  return {};
}

struct Factor {
  const char* name;
  float value;
};

inline Status check_finite(std::initializer_list<Factor> factors) {
  for (const Factor& factor : factors) {
    if (!std::isfinite(factor.value)) {
      return Status::error(MLA_RANGE, factor.name, text(factor.value), "a finite number");
    }
  }
  return {};
}

// Plan and workspace are read as words of up to 16 bytes.
inline constexpr int64_t kBufferAlignment = 16;

inline Status check_buffer(const char* name, ConstBuffer buffer, int64_t needed) {
  if (needed == 0) return {};
  if (buffer.data == nullptr || buffer.bytes < needed) {
    return Status::error(MLA_WORKSPACE, name,
                         text(buffer.data == nullptr ? 0 : buffer.bytes, " bytes"),
                         text(needed, " bytes or more"));
  }
  if (reinterpret_cast<uintptr_t>(buffer.data) % kBufferAlignment != 0) {
    return Status::error(MLA_ALIGNMENT, name, "unaligned memory",
                         text("memory aligned to ", kBufferAlignment, " bytes"));
  }
  return {};
}

// Refuses pages whose rows and scales are not where the format has them. Strides count bytes.
inline Status check_page_strides(const char* name, const CacheFormat& format, int64_t num_pages,
                                 int64_t page_size, int64_t page_stride, int64_t token_stride) {
  if (format.scale_place != ScalePlace::page || num_pages == 0) return {};
  if (page_size > 1 && token_stride != format.token_bytes) {
    return Status::error(MLA_STRIDE, name, text("stride ", token_stride, " along page_size"),
                         text(format.token_bytes, " bytes a token, because the scales of ",
                              format.name, " follow the rows of their page"));
  }
  if (num_pages > 1 && page_stride % format.page_multiple != 0) {
    return Status::error(
        MLA_STRIDE, name, text("stride ", page_stride, " along num_pages"),
        text("a multiple of ", format.page_multiple, ", such as ", format.page_bytes(page_size),
             ", to which pages of ", format.name, " are padded"));
  }
  return {};
}

}  // namespace mla
