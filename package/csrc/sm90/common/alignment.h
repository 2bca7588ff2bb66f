// Whether rows can be read and written in pieces: what asynchronous copies move, and vectors.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "common/dtype.h"
#include "cuda/launch.h"

namespace mla::sm90 {

struct Stride {
  int64_t elements;
  int64_t extent;  // of its dimension; a stride of one element is never used
};

inline bool are_rows_of(const void* data, DType dtype, std::initializer_list<Stride> strides,
                        int64_t elements) {
  return cuda::is_aligned(data, elements * static_cast<int64_t>(element_bytes(dtype))) &&
         std::all_of(strides.begin(), strides.end(), [=](const Stride& stride) {
           return stride.extent <= 1 || stride.elements % elements == 0;
         });
}

// Of 16 bytes.
inline int64_t piece_elements(DType dtype) {
  return 16 / static_cast<int64_t>(element_bytes(dtype));
}
inline bool is_in_pieces(const void* data, DType dtype, std::initializer_list<Stride> strides) {
  return are_rows_of(data, dtype, strides, piece_elements(dtype));
}
inline bool is_in_fours(const void* data, DType dtype, std::initializer_list<Stride> strides) {
  return are_rows_of(data, dtype, strides, 4);
}

inline Status check_in_pieces(const char* name, const void* data, DType dtype,
                              std::initializer_list<Stride> strides) {
  if (!is_in_pieces(data, dtype, {})) {
    return Status::error(MLA_ALIGNMENT, name, "an address that 16 does not divide",
                         "memory aligned to 16 bytes");
  }
  if (is_in_pieces(data, dtype, strides)) return {};
  std::string got = "strides";
  for (const Stride& stride : strides) got += text(" ", stride.elements);
  return Status::error(
      MLA_STRIDE, name, got,
      text("multiples of ", piece_elements(dtype), " elements, which are 16 bytes"));
}

}  // namespace mla::sm90
