#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/op.h"
#include "common/traits.h"
#include "cuda/traits.h"
#include "sm90/decode/supports.h"

namespace mla::sm90 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim,
          int kDV = kLatent, ComputeDType kCompute = ComputeDType::exact>
struct Decode : Op<mla_decode_problem> {
  static_assert(decode::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute));

  static Status can_run(const Problem& problem);
  static Status plan_size(const Problem& problem, int64_t* bytes);
  static Status plan(const Problem& problem, Buffer plan, Stream stream);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
  static Status prepare(int32_t device);

 private:
  static constexpr cuda::Traits kTraits = {kQ,   kKv, kOut,          kLoad,   kSchedule,
                                           kDQk, kDV, ExtraKv::same, kCompute};
};

}  // namespace mla::sm90
