// What the types of Q and of the cache decide: the elements that tensor cores multiply, where KV is
// staged that is dequantized on its way to them, how many stages the KV pipelines have, and how
// many blocks load together. The policy of a format whose rows hold scales is in a file of its own.
#pragma once

#include <algorithm>

#include "common/dtype.h"
#include "common/traits.h"
#include "mla/formats.h"
#include "sm90/common/elements.cuh"
#include "sm90/common/pipeline.cuh"
#include "sm90/mainloop/rows_m64/layouts.cuh"

namespace mla::sm90::rows_m64 {

struct NoStaging {};

// What the widths decide. Queries and keys have the chunks of the value first, which are two
// halves, or a single one where a value has no more columns. Where queries and keys have more
// columns than the value, these are a chunk that is a key only, and has stages of its own. Of the
// chunks, the last one comes from the rope part of queries if the cache has one.
template <DType kKv, int kDQk, int kDV = kLatent>
struct Widths {
  static constexpr CacheFormat kCache = kCacheFormat<kKv, kDQk, kDV>;
  static constexpr int kChunks = kDQk / kChunk;
  static constexpr int kLatentChunks = kDV / kChunk;
  static constexpr int kHalves = kDV / kHalf;
  static constexpr bool kHasKeyChunk = kChunks > kLatentChunks;
  static constexpr int kKeyChunk = kLatentChunks;  // if there is one
  // Chunks of Q that are in registers; the rest is in shared memory.
  static constexpr int kRegisterChunks = std::min(5, kChunks - 1);
  static constexpr int kQueryLatentChunks = kCache.latent / kChunk;
  static constexpr bool kQueryHasRope = kQueryLatentChunks < kChunks;
  static_assert(kDQk % kChunk == 0 && kDV % kHalf == 0 && kCache.latent % kChunk == 0);
  static_assert(kChunks - kLatentChunks <= 1 && kChunks - kQueryLatentChunks <= 1);
};

// Tensor cores read a 16-bit cache as it is. Its pipelines have five halves: two and a half tiles,
// or five of one half each.
template <DType kQ, DType kKv, int kDQk = kHeadDim, int kDV = kLatent,
          ExtraKv kExtraKv = ExtraKv::same>
struct Format : Widths<kKv, kDQk, kDV> {
  static_assert(kQ == kKv && kExtraKv == ExtraKv::same);
  using Element = typename ElementOf<kQ>::Type;
  using Staging = NoStaging;
  static constexpr bool kDequantizes = false;
  static constexpr bool kMultipliesFp8 = false;
  static constexpr bool kConvertsQuery = false;  // from bf16 to fp16
  static constexpr int kLatentStages = 5;
  static constexpr int kRopeStages = kLatentStages / Widths<kKv, kDQk, kDV>::kHalves;
  // The most blocks that share what they load. Where threads gather rows, each block does so for
  // itself.
  template <Load kLoad>
  static constexpr int kMaxCluster = kLoad == Load::gather ? 1 : 2;
};

// The same with two tiles in its pipelines.
template <DType kDType, int kDQk>
struct TwoTiles : Format<kDType, kDType, kDQk> {
  static constexpr int kLatentStages = 4;
  static constexpr int kRopeStages = 2;
};

// The chunks of a tile of e4m3, as they are in memory.
template <int kChunks>
struct Fp8Staging {
  alignas(1024) uint8_t chunks[kChunks][kChunkElements];
  uint64_t present;  // a bit for each token; it comes with the last chunk
  TransactionBarrier full[kChunks];
  Barrier empty[kChunks];

  // `blocks` load together.
  __device__ void init_barriers(int blocks) {
    for (auto& barrier : full) barrier.init(1);
    for (auto& barrier : empty) barrier.init(blocks);
  }
};

// e4m3 becomes fp16, which has every e4m3. The tile that is staged is on its way meanwhile, so that
// the pipelines behind it have four halves only.
template <int kDQk, int kDV>
struct Format<DType::bf16, DType::e4m3, kDQk, kDV> : Widths<DType::e4m3, kDQk, kDV> {
  using Element = cute::half_t;
  using Staging = Fp8Staging<kDQk / kChunk>;
  static constexpr bool kDequantizes = true;
  static constexpr bool kMultipliesFp8 = false;
  static constexpr bool kConvertsQuery = true;
  static constexpr int kLatentStages = 4;
  static constexpr int kRopeStages = kDV > kHalf ? 1 : 2;
  template <Load>
  static constexpr int kMaxCluster = 2;
};

// Whether P V of a tile waits for the logits of the next one, so that it runs beside their softmax.
// That pays where tensor cores are the limit, as with the 128 rows of a cluster. It holds a tile
// longer, so that little memory is left for the next one: KV is prefetched to L2 there.
template <class Format, int kBlocks>
inline constexpr bool kPvAfterLogits = kBlocks > 1 && !Format::kDequantizes;

// A tile's P is published in so many parts, that the output need not wait for all of it. Where KV
// is dequantized, that gains nothing.
template <class Format>
inline constexpr int kPParts = Format::kDequantizes ? 1 : 2;

}  // namespace mla::sm90::rows_m64
