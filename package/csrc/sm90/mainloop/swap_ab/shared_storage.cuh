// The shared memory of a block of the schedule `swap_ab`, and the barriers in it. KV fills it.
#pragma once

#include "sm90/combine/split_request.cuh"
#include "sm90/mainloop/swap_ab/format_scaled_rows.cuh"
#include "sm90/scheduler/work_tile_pipeline.cuh"

namespace mla::sm90::swap_ab {

inline constexpr int kConsumers = 2;  // warpgroups, each of which has every second tile
inline constexpr int kQueryWarps = 2;
inline constexpr int kThreads = (kConsumers + 1) * kWarpgroup;

// Whether a consumer's threads have registers for what they know of a work tile and its rows,
// beside sums, which take four for each row, and operands. Else that is in shared memory.
template <class Format, int kRows>
inline constexpr bool kKeepsRowsInRegisters = kRows == 16 || Format::kScales == 0;

// A thread has registers by its role; the three warpgroups have 504 together. With fewer than
// these, the compiler runs the tensor cores' instructions one by one.
template <int kRows>
inline constexpr uint32_t kConsumerRegisters = kRows == 16 ? 216 : 232;
template <int kRows>
inline constexpr uint32_t kProducerRegisters = 504 - kConsumers * kConsumerRegisters<kRows>;

// All consumers have a named barrier, and another one for combining, and each has one of its own.
enum NamedBarrier : uint32_t { kAllConsumers = 1, kFirstConsumer = 2, kCombineBarrier = 4 };

// What consumers are told of a work tile and of its queries.
template <int kRows>
struct QueryFacts {
  WorkTile work;
  uint32_t index;  // of the work tile among those of the block
  float logit_scale[kRows];
  int32_t limits[kRows];  // how many tokens of the request each row sees
  int32_t least_limit;
};

// The greatest logits of a work tile, which sparse attention returns.
template <bool kIsSparse, int kRows>
struct MaxLogits {};
template <int kRows>
struct MaxLogits<true, kRows> {
  float max_logits[kConsumers][kWarps][kRows];
};

// What the threads of consumers know of their rows, a quarter of all, without registers for it.
template <bool kIsThere, int kRows>
struct RowsOfThreads {};
template <int kRows>
struct RowsOfThreads<true, kRows> {
  struct {
    using OfThreads = float[kRows / 4][kConsumers * kWarpgroup];
    OfThreads row_max;
    OfThreads sum;
    OfThreads max_logit;
  } of_threads;
};

// `kRows` is the number of query rows at most.
template <class Format, int kRows>
struct SharedStorage : MaxLogits<Format::kIsSparse, kRows>,
                       RowsOfThreads<!kKeepsRowsInRegisters<Format, kRows>, kRows> {
  using Element = typename Format::Element;
  static constexpr int kQueryStages = kRows == 16 ? 2 : 1;
  // There is one more than of Q: facts are needed until the work tile's result is stored.
  static constexpr int kFactStages = kQueryStages + 1;

  typename Format::Kv kv;
  alignas(1024) typename Format::QueryElement q[kQueryStages][Format::kQueryChunks][kRows * kChunk];
  alignas(1024) Element p[kConsumers][Format::kWeights * kRows * kTileTokens];
  QueryFacts<kRows> query_facts[kFactStages];
  float of_warps[kConsumers][kWarps][kRows];  // maxima of a tile, then sums of a work tile
  float row_max[kConsumers][kRows];           // of a work tile
  WorkTilePipeline work_tiles;
  SplitRequest split_request;
  typename Format::KvPipelines pipelines;
  Barrier received[kConsumers];  // by a consumer, its next tile
  Barrier query_full[kQueryStages];
  Barrier query_empty[kQueryStages];

  // One thread calls this.
  __device__ void init_barriers() {
    work_tiles.init_barriers(kConsumers * kWarps + kQueryWarps + Format::kKvWarps);
    pipelines.init_barriers();
    for (auto& barrier : received) barrier.init(kWarps);
    // A lane arrives when its copies are done, and when it has said what consumers are told.
    for (auto& barrier : query_full) barrier.init(2 * kQueryWarps * kWarp);
    for (auto& barrier : query_empty) barrier.init(kConsumers * kWarpgroup);
  }
};

}  // namespace mla::sm90::swap_ab
