#pragma once

#include "common/dtype.h"
#include "common/op.h"
#include "cuda/store_kv/supports.h"

namespace mla::cuda {

// A token whose slot lies outside the cache is skipped. Where the scale of an e4m3 cache is not
// positive and finite, which only the device knows, NaN is stored.
template <DType kIn, DType kKv, int kDQk = kHeadDim, int kDV = kLatent>
struct StoreKv : Op<mla_store_kv_problem> {
  static_assert(store_kv::supports(kIn, kKv, kDQk, kDV));

  static Status can_run(const Problem& problem);
  static Status prepare(int32_t device);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

}  // namespace mla::cuda
