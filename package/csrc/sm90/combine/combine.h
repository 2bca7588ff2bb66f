#pragma once

#include <cuda_runtime_api.h>

#include "common/status.h"
#include "sm90/decode/params.h"

namespace mla::sm90 {

// Merges the partial results of split requests into the rows where they belong. Reads them when the
// kernel ahead in the stream has ended.
template <DType kOut>
Status merge_partials(const Params& params, int32_t device, cudaStream_t stream);
template <DType kOut>
Status prepare_merge(int32_t device);

}  // namespace mla::sm90
