// The traits of a variant as numbers, for host code that is compiled once for all variants.
#pragma once

#include "common/dtype.h"
#include "common/traits.h"

namespace mla::cuda {

struct Traits {
  DType q;
  DType kv;
  DType out;
  Load load;
  Schedule schedule;
};

}  // namespace mla::cuda
