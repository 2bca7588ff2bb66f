#pragma once

#include "common/traits.h"
#include "cpu/op.h"
#include "cpu/sparse/driver.h"
#include "cpu/sparse_decode/supports.h"

namespace mla::cpu {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim,
          int kDV = kLatent, ExtraKv kExtraKv = ExtraKv::same>
struct SparseDecode : Op<mla_sparse_decode_problem> {
  static constexpr sparse::Types kTypes = {
      kQ, kCacheFormat<kKv, kDQk, kDV>, kCacheFormat<extra_format(kExtraKv, kKv), kDQk, kDV>, kOut};
  static_assert(sparse_decode::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kExtraKv));

  static Status can_run(const Problem& problem);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kExtraKv>::can_run(
    const Problem& problem) {
  return sparse::can_run(problem, kTypes, sparse::kDecodeNames);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kExtraKv>::workspace_size(
    const Problem& problem, int64_t* bytes) {
  return sparse::workspace_size(problem, kTypes, sparse::kDecodeNames, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kExtraKv>::launch(
    const Problem& problem, ConstBuffer, Buffer workspace, Stream) {
  return sparse::launch(problem, kTypes, sparse::kDecodeNames, workspace);
}

}  // namespace mla::cpu
