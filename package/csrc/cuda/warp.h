// This header says how many threads a warp has.
#pragma once

namespace mla::cuda {

inline constexpr int kWarp = 32;

}  // namespace mla::cuda
