#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/traits.h"
#include "cuda/op.h"
#include "sm100/decode/supports.h"

namespace mla::sm100 {

struct Attention;
struct Layout;

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
struct Decode : cuda::Op<mla_decode_problem> {
  static_assert(decode::supports(kQ, kKv, kOut, kLoad, kSchedule));

  static Status can_run(const Problem& problem);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
  static Status prepare(int32_t device);

  // The kernel over rows that are prepared in the workspace; sparse decode runs it too, and so does
  // not compile it again.
  static Status run(const Attention& attention, const Layout& layout, void* workspace,
                    Stream stream);
};

}  // namespace mla::sm100
