// The dtypes of the registry and the ABI as DLPack spells them.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/cache_format.h"
#include "launcher/dlpack.h"
#include "launcher/python.h"

namespace mla::launcher {

// A dtype and the tensors that carry it.
struct ElementType {
  const char* name;
  const char* accepts;
  dlpack::DataType types[2];
  int64_t bytes;
  bool byte_row = false;  // each row of a cache is bytes, scales and rope part included

  bool matches(dlpack::DataType dtype) const {
    return memcmp(&types[0], &dtype, sizeof dtype) == 0 ||
           memcmp(&types[1], &dtype, sizeof dtype) == 0;
  }
};

// Returns null when there is no such dtype.
const ElementType* element_type(const char* name);

// Returns the dtype of a cache's tensors: that of its elements, or bytes.
const ElementType* cache_type(const CacheFormat& format);

[[gnu::cold]] PyObject* dtype_text(dlpack::DataType dtype);

}  // namespace mla::launcher
