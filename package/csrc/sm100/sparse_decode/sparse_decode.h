#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/op.h"
#include "common/traits.h"
#include "cuda/traits.h"
#include "sm100/sparse_decode/supports.h"

namespace mla::sm100 {

// Sparse decode is dense decode over the selected slots, as pages of one token or gathered into
// bf16 rows.
template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim,
          ExtraKv kExtraKv = ExtraKv::same>
struct SparseDecode : Op<mla_sparse_decode_problem> {
  static_assert(sparse_decode::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv));

  static Status can_run(const Problem& problem);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
  static Status prepare(int32_t device);

 private:
  static constexpr cuda::Traits kTraits = {kQ,        kKv,  kOut,    kLoad,
                                           kSchedule, kDQk, kLatent, kExtraKv};
};

}  // namespace mla::sm100
