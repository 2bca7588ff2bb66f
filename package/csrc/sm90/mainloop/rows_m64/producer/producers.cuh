// Which producers a cache format and a load have.
#pragma once

#include <type_traits>

#include "sm90/mainloop/rows_m64/fp8/transposer.cuh"
#include "sm90/mainloop/rows_m64/producer/dequantize.cuh"
#include "sm90/mainloop/rows_m64/producer/gather.cuh"
#include "sm90/mainloop/rows_m64/producer/gather_dequantize.cuh"
#include "sm90/mainloop/rows_m64/producer/tma.cuh"

namespace mla::sm90::rows_m64 {

template <class Format, Load kLoad, int kCluster, class Params>
struct ProducersOf {
  // Tensor cores read a 16-bit cache as it is; e4m3 is staged by TMA and dequantized, or
  // transposed, by other warps; rows of bytes are gathered and dequantized by the same warps.
  static constexpr bool kStages = Format::kDequantizes && kLoad == Load::tma;
  static constexpr bool kGathersBytes = Format::kDequantizes && kLoad == Load::gather;

  using Loader = std::conditional_t<kLoad == Load::gather, GatherProducer<Format, Params>,
                                    TmaProducer<Format, kCluster, Params>>;
  using StagedConverter =
      std::conditional_t<Format::kMultipliesFp8, Transposer<Format, kCluster, Params>,
                         Dequantizer<Format, kCluster, Params>>;
  using Converter =
      std::conditional_t<kStages, StagedConverter, GatherDequantizer<Format, kCluster, Params>>;
  // What fills the KV pipelines.
  using Producer = std::conditional_t<Format::kDequantizes, Converter, Loader>;

  // The warps that read the work tiles, but for one that copies Q.
  static constexpr int kWorkTileReaders =
      Producer::kWarps + (kStages ? TmaProducer<Format, kCluster, Params>::kWarps : 0);
};

}  // namespace mla::sm90::rows_m64
