#pragma once

#include <cstdint>

namespace mla {

struct Buffer {
  void* data = nullptr;
  int64_t bytes = 0;
};

struct ConstBuffer {
  const void* data = nullptr;
  int64_t bytes = 0;
};

using Stream = void*;

}  // namespace mla
