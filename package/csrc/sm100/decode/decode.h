#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/op.h"
#include "common/traits.h"
#include "cuda/traits.h"
#include "sm100/decode/supports.h"

namespace mla::sm100 {

struct AttentionProblem;
struct WorkspaceLayout;

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim,
          int kDV = kLatent>
struct Decode : Op<mla_decode_problem> {
  static_assert(decode::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV));

  static Status can_run(const Problem& problem);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
  static Status prepare(int32_t device);

  // Runs the kernel over rows that are prepared in the workspace. Sparse decode calls it too, so
  // that the kernel is compiled once.
  static Status run(const AttentionProblem& attention, const WorkspaceLayout& layout,
                    void* workspace, Stream stream);

 private:
  static constexpr cuda::Traits kTraits = {kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV};
};

}  // namespace mla::sm100
