// The combine of dense decode as a kernel of its own, for launches whose blocks cannot all run at
// once or whose splits the parts do not show (max_splits).
#pragma once

#include <cuda_runtime_api.h>

#include "common/status.h"
#include "sm90/params/dense.h"

namespace mla::sm90 {

// Combines the partial results of split requests into their rows. The kernel waits until the one
// ahead of it in the stream has ended.
template <DType kOut>
Status combine_partials(const decode::Params& params, int32_t device, cudaStream_t stream);
template <DType kOut>
Status prepare_combine(int32_t device);

}  // namespace mla::sm90
