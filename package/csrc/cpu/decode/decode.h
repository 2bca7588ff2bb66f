#pragma once

#include "common/traits.h"
#include "cpu/attention.h"
#include "cpu/decode/supports.h"
#include "cpu/op.h"

namespace mla::cpu {

namespace decode {

Status can_run(const mla_decode_problem& problem, const AttentionTypes& types);
Status plan_size(const mla_decode_problem& problem, const AttentionTypes& types, int64_t* bytes);
Status plan(const mla_decode_problem& problem, const AttentionTypes& types, Buffer plan);
Status workspace_size(const mla_decode_problem& problem, const AttentionTypes& types,
                      int64_t* bytes);
Status launch(const mla_decode_problem& problem, const AttentionTypes& types, ConstBuffer plan,
              Buffer workspace);

}  // namespace decode

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim,
          int kDV = kLatent, ComputeDType kCompute = ComputeDType::exact>
struct Decode : Op<mla_decode_problem> {
  static constexpr AttentionTypes kTypes = {kQ, kCacheFormat<kKv, kDQk, kDV>, kOut, kCompute};
  static_assert(decode::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute));

  static Status can_run(const Problem& problem);
  static Status plan_size(const Problem& problem, int64_t* bytes);
  static Status plan(const Problem& problem, Buffer plan, Stream stream);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

// These are not inline, so that a variant that nobody instantiates is a link error.

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::can_run(
    const Problem& problem) {
  return decode::can_run(problem, kTypes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::plan_size(
    const Problem& problem, int64_t* bytes) {
  return decode::plan_size(problem, kTypes, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::plan(const Problem& problem,
                                                                          Buffer plan, Stream) {
  return decode::plan(problem, kTypes, plan);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::workspace_size(
    const Problem& problem, int64_t* bytes) {
  return decode::workspace_size(problem, kTypes, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::launch(const Problem& problem,
                                                                            ConstBuffer plan,
                                                                            Buffer workspace,
                                                                            Stream) {
  return decode::launch(problem, kTypes, plan, workspace);
}

}  // namespace mla::cpu
