#pragma once

#include "sm90/sparse_prefill/sparse_prefill.h"

namespace mla::sm90 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule, kDQk>::can_run(const Problem& problem) {
  return Decode::can_run(as_decode(problem), sparse_decode::kPrefillContext);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule, kDQk>::workspace_size(const Problem& problem,
                                                                            int64_t* bytes) {
  return Decode::workspace_size(as_decode(problem), sparse_decode::kPrefillContext, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule, kDQk>::launch(const Problem& problem,
                                                                    ConstBuffer, Buffer workspace,
                                                                    Stream stream) {
  return Decode::launch(as_decode(problem), sparse_decode::kPrefillContext, workspace, stream);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule, kDQk>::prepare(int32_t device) {
  return Decode::prepare(device);
}

}  // namespace mla::sm90
