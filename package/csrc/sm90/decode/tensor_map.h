// Tensor maps of a cache and of queries for the tensor memory accelerator.
#pragma once

#include "common/status.h"
#include "sm90/decode/params.h"

namespace mla::sm90 {

// Fills the maps of KV and, where it is loaded so, of Q; a box is one chunk of one tile.
Status encode_maps(DType dtype, Params* params);

}  // namespace mla::sm90
