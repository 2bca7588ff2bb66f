#pragma once

#include "mla/conversions.h"
#include "sm90/sparse_decode/sparse_decode.h"
#include "sm90/sparse_prefill/supports.h"

namespace mla::sm90 {

// The kernel of sparse decode computes this op too: to it, every query token is a request.
template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim>
struct SparsePrefill : Op<mla_sparse_prefill_problem> {
  static_assert(sparse_prefill::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk));

  static Status can_run(const Problem& problem);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
  static Status prepare(int32_t device);

 private:
  using Decode = SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk>;
};

}  // namespace mla::sm90
