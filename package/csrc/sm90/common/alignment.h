// Whether rows are aligned to 16 bytes, which asynchronous copies move at once, and to four
// elements, which threads store at once.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "common/dtype.h"
#include "cuda/launch.h"

namespace mla::sm90 {

struct Stride {
  int64_t elements;
  int64_t extent;  // of its dimension; the stride of a dimension of extent 1 is never used
};

// Whether every row begins at a multiple of so many elements.
inline bool are_rows_aligned(const void* data, DType dtype, std::initializer_list<Stride> strides,
                             int64_t elements) {
  return cuda::is_aligned(data, elements * static_cast<int64_t>(element_bytes(dtype))) &&
         std::all_of(strides.begin(), strides.end(), [=](const Stride& stride) {
           return stride.extent <= 1 || stride.elements % elements == 0;
         });
}

inline int64_t elements_in_16_bytes(DType dtype) {
  return 16 / static_cast<int64_t>(element_bytes(dtype));
}

inline bool is_aligned_to_16_bytes(const void* data, DType dtype,
                                   std::initializer_list<Stride> strides) {
  return are_rows_aligned(data, dtype, strides, elements_in_16_bytes(dtype));
}

inline bool is_aligned_to_4_elements(const void* data, DType dtype,
                                     std::initializer_list<Stride> strides) {
  return are_rows_aligned(data, dtype, strides, 4);
}

inline Status check_aligned_to_16_bytes(const char* name, const void* data, DType dtype,
                                        std::initializer_list<Stride> strides) {
  if (!is_aligned_to_16_bytes(data, dtype, {})) {
    return Status::error(MLA_ALIGNMENT, name, "an address that 16 does not divide",
                         "memory aligned to 16 bytes");
  }
  if (is_aligned_to_16_bytes(data, dtype, strides)) return {};
  std::string got = "strides";
  for (const Stride& stride : strides) got += text(" ", stride.elements);
  return Status::error(
      MLA_STRIDE, name, got,
      text("multiples of ", elements_in_16_bytes(dtype), " elements, which are 16 bytes"));
}

}  // namespace mla::sm90
