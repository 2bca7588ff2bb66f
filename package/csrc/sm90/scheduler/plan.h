#pragma once

#include <cuda_runtime_api.h>

#include "common/status.h"
#include "sm90/scheduler/shape.h"

namespace mla::sm90 {

// Fills a plan's buffer from the lengths of [batch] requests.
Status make_plan(const Shape& shape, const int32_t* lengths, void* buffer, cudaStream_t stream);
Status prepare_plan(int32_t device);

}  // namespace mla::sm90
