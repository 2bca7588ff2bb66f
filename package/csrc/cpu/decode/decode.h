#pragma once

#include <string_view>

#include "cpu/attention.h"
#include "cpu/op.h"

namespace mla::cpu {

namespace decode {

Status can_run(const mla_decode_problem& problem, const AttentionTypes& types);
Status plan_size(const mla_decode_problem& problem, int64_t* bytes);
Status plan(const mla_decode_problem& problem, Buffer plan);
Status workspace_size(const mla_decode_problem& problem, int64_t* bytes);
Status launch(const mla_decode_problem& problem, const AttentionTypes& types, ConstBuffer plan,
              Buffer workspace);

}  // namespace decode

template <DType kQ, DType kKv, DType kOut>
struct Decode : Op<mla_decode_problem> {
  static constexpr AttentionTypes kTypes = {kQ, kKv, kOut};
  static constexpr std::string_view kLoad = "direct";
  static constexpr std::string_view kSchedule = "split";

  static Status can_run(const Problem& problem);
  static Status plan_size(const Problem& problem, int64_t* bytes);
  static Status plan(const Problem& problem, Buffer plan, Stream stream);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

// Not inline, so that a variant nobody instantiates is a link error.

template <DType kQ, DType kKv, DType kOut>
Status Decode<kQ, kKv, kOut>::can_run(const Problem& problem) {
  return decode::can_run(problem, kTypes);
}

template <DType kQ, DType kKv, DType kOut>
Status Decode<kQ, kKv, kOut>::plan_size(const Problem& problem, int64_t* bytes) {
  return decode::plan_size(problem, bytes);
}

template <DType kQ, DType kKv, DType kOut>
Status Decode<kQ, kKv, kOut>::plan(const Problem& problem, Buffer plan, Stream) {
  return decode::plan(problem, plan);
}

template <DType kQ, DType kKv, DType kOut>
Status Decode<kQ, kKv, kOut>::workspace_size(const Problem& problem, int64_t* bytes) {
  return decode::workspace_size(problem, bytes);
}

template <DType kQ, DType kKv, DType kOut>
Status Decode<kQ, kKv, kOut>::launch(const Problem& problem, ConstBuffer plan, Buffer workspace,
                                     Stream) {
  return decode::launch(problem, kTypes, plan, workspace);
}

}  // namespace mla::cpu
