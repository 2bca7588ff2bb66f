#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/op.h"
#include "common/traits.h"
#include "sm90/sparse_decode/problem.h"
#include "sm90/sparse_decode/supports.h"

namespace mla::sm90 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim,
          ExtraKv kExtraKv = ExtraKv::same>
struct SparseDecode : Op<mla_sparse_decode_problem> {
  static_assert(sparse_decode::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv));

  static Status can_run(const Problem& problem);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
  static Status prepare(int32_t device);

  // The same for an op that has other names for its tensors, without compiling the kernel again.
  static Status can_run(const Problem& problem, const sparse_decode::Context& context);
  static Status workspace_size(const Problem& problem, const sparse_decode::Context& context,
                               int64_t* bytes);
  static Status launch(const Problem& problem, const sparse_decode::Context& context,
                       Buffer workspace, Stream stream);

 private:
  static constexpr Traits kTraits = {kQ, kKv, kOut, kLoad, kSchedule, kDQk, kLatent, kExtraKv};
  // What computes the heads of few query tokens in groups, if anything does.
  static constexpr bool kTakesGroups =
      sparse_decode::supports(kQ, kKv, kOut, kLoad, Schedule::swap_ab, kDQk, kExtraKv);
  using Groups = SparseDecode<kQ, kKv, kOut, kLoad, Schedule::swap_ab, kDQk, kExtraKv>;
};

}  // namespace mla::sm90
