// The dtypes of the registry and the ABI as DLPack spells them.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/cache_format.h"
#include "launcher/python/python.h"
#include "launcher/tensors/dlpack.h"

namespace mla::launcher {

// A dtype and the tensors that carry it.
struct ElementType {
  const char* name;
  const char* accepts;
  dlpack::DataType types[2];
  int64_t bytes;
  bool byte_row = false;  // whether a cache row is one array of bytes, with scales and rope

  bool matches(dlpack::DataType dtype) const {
    return memcmp(&types[0], &dtype, sizeof dtype) == 0 ||
           memcmp(&types[1], &dtype, sizeof dtype) == 0;
  }
};

// Returns null where there is no such dtype.
const ElementType* element_type(const char* name);

// Returns the dtype of a cache's tensors: that of its elements, or bytes.
const ElementType* cache_type(const CacheFormat& format);

// Returns the dtype as torch and NumPy call it.
[[gnu::cold]] PyObject* dtype_text(dlpack::DataType dtype);

}  // namespace mla::launcher
