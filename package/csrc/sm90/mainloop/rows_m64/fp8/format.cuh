// What fp8 arithmetic decides: tensor cores multiply e4m3 by e4m3, so that K is read as it is
// staged. V is not: they take the second operand of 8-bit elements with tokens side by side, so it
// is transposed. All of Q is in shared memory, since registers are short.
#pragma once

#include "sm90/mainloop/rows_m64/format.cuh"

namespace mla::sm90::rows_m64 {

// Tiles of a cache, as they are in memory.
template <int kChunks>
struct Fp8Tiles {
  static constexpr int kStages = 3;
  static constexpr uint32_t kTileBytes = kChunks * kChunkElements;
  // The warps of a block that read a stage: those of the logits, and those that transpose.
  static constexpr int kReaders = kWarps + 3;

  alignas(1024) cutlass::float_e4m3_t chunks[kStages][kChunks][kChunkElements];
  uint64_t present[kStages];  // a bit for each token
  TransactionBarrier full[kStages];
  Barrier empty[kStages];

  // `blocks` load together.
  __device__ void init_barriers(int blocks) {
    for (auto& barrier : full) barrier.init(1);
    for (auto& barrier : empty) barrier.init(blocks * kReaders);
  }
};

// The pipelines of the latent have two tiles of V^T.
template <int kDQk, int kDV>
struct Fp8Format : Widths<DType::e4m3, kDQk, kDV> {
  using Element = cutlass::float_e4m3_t;
  using Query = cutlass::bfloat16_t;
  using Staging = Fp8Tiles<kDQk / kChunk>;
  static constexpr bool kDequantizes = true;
  static constexpr bool kMultipliesFp8 = true;
  static constexpr bool kConvertsQuery = true;
  static constexpr int kRegisterChunks = 0;  // of Q
  static constexpr int kLatentStages = 2 * kDV / kHalf;
  static constexpr int kRopeStages = 1;
  template <Load>
  static constexpr int kMaxCluster = 2;
};

template <DType kQ, DType kKv, int kDQk, int kDV, ExtraKv kExtraKv, ComputeDType kCompute>
struct FormatOfTypes {
  using Type = Format<kQ, kKv, kDQk, kDV, kExtraKv>;
};
template <int kDQk, int kDV>
struct FormatOfTypes<DType::bf16, DType::e4m3, kDQk, kDV, ExtraKv::same, ComputeDType::e4m3> {
  using Type = Fp8Format<kDQk, kDV>;
};

// The format of a kernel. Where TMA loads 16-bit KV for a block alone, memory is the limit. Two
// tiles on their way are enough there, and take less time than two and a half.
template <DType kQ, DType kKv, int kDQk, int kDV, ExtraKv kExtraKv, ComputeDType kCompute,
          Load kLoad, int kCluster>
using FormatOf =
    std::conditional_t<kQ == kKv && kDV == kLatent && kLoad == Load::tma && kCluster == 1,
                       TwoTiles<kQ, kDQk>,
                       typename FormatOfTypes<kQ, kKv, kDQk, kDV, kExtraKv, kCompute>::Type>;

}  // namespace mla::sm90::rows_m64
