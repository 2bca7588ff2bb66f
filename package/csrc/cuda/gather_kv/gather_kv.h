#pragma once

#include "common/dtype.h"
#include "common/op.h"
#include "cuda/gather_kv/supports.h"

namespace mla::cuda {

// Copies rows of a cache, dequantised; an index outside the cache gives a row of zeros.
template <DType kKv, DType kOut, int kDQk = kHeadDim, int kDV = kLatent>
struct GatherKv : Op<mla_gather_kv_problem> {
  static_assert(gather_kv::supports(kKv, kOut, kDQk, kDV));

  static Status can_run(const Problem& problem);
  static Status prepare(int32_t device);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

}  // namespace mla::cuda
