// Dequantizes rows of bytes from a warp's buffers into the KV pipelines: by whole tokens, or where
// two blocks store for each other, by halves of all tokens that the warp has of a tile.
#pragma once

#include "sm90/mainloop/rows_m64/producer/byte_rows.cuh"
#include "sm90/mainloop/rows_m64/producer/query.cuh"

namespace mla::sm90::rows_m64 {

template <class Format, int kCluster>
struct RowDequantizer {
  using Element = typename Format::Element;
  using Staging = typename Format::Staging;
  using Row = typename Staging::Row;
  static constexpr uint32_t kRows = Staging::kRows;
  static constexpr uint32_t kVectors = kChunkVectors<Element>;
  static constexpr uint32_t kAtomBytes = kAtomElements * sizeof(Element);
  static constexpr uint32_t kRowBytes = kChunk * sizeof(Element);  // of a chunk
  static constexpr int kSteps = Staging::kTokens / kCluster / kRows;

  SharedStorage<Format>& shared;
  const int rank;
  const uint32_t first_token;  // of a tile, that the warp dequantizes

  // A block that is alone dequantizes the `step`-th tokens of a warp in a tile.
  template <class Rows>
  __device__ __forceinline__ void dequantize_tokens(const Row (&rows)[kRows], int step,
                                                    uint32_t tile) const {
    static_assert(kCluster == 1);
    constexpr bool kAllAreCodes = Rows::kFormat.latent == kLatent;
    const LaneColumns columns(read_lane_index());
    const bool first_are_codes = kAllAreCodes || columns.first < Rows::kFormat.latent;
    const bool second_are_codes = kAllAreCodes || columns.second() < Rows::kFormat.latent;
    const auto state = latent_state<Format>(tile, columns.half);
    const Target target(*this, shared.latent_full[state.stage]);
    const uint32_t to = cute::cast_smem_ptr_to_uint(shared.latent[state.stage]) + columns.offset();
    // A token is read while the one before it is dequantized. With scales of a page, which take
    // registers, that is only the first half of it.
    constexpr bool kReadsWhole = !Rows::kHasPageScales;
    Eight<Rows> first[kRows];
    Codes<Rows> second[kRows];
    uint4 rope;
    first[0].read(rows[0], columns.first);
    if constexpr (kReadsWhole) second[0] = codes_of<Rows>(rows[0].bytes, columns.second());
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      if constexpr (!kReadsWhole) second[k] = codes_of<Rows>(rows[k].bytes, columns.second());
      if (k + 1 < kRows) {
        first[k + 1].read(rows[k + 1], columns.first);
        if constexpr (kReadsWhole) {
          second[k + 1] = codes_of<Rows>(rows[k + 1].bytes, columns.second());
        }
      } else if constexpr (Rows::kFormat.rope > 0) {
        rope = read_rope<Rows>(rows);
      }
      const uint32_t of_group = (step * kRows + k) % kSwizzleRows;
      const uint32_t row = (to ^ of_group * sizeof(uint4)) + row_offset(step, k);
      const auto factor = factor_of<Rows>(first[k].scale);
      target.store(row, scaled<Element>(first[k].codes, factor), first_are_codes);
      target.store(row ^ sizeof(uint4), scaled<Element>(second[k], factor), second_are_codes);
    }
    if constexpr (Rows::kFormat.rope > 0) store_rope(step, tile, rope);
  }

  // Dequantizes a half of the columns of all tokens that a warp has of a tile, and with the right
  // one, the rope columns. A lane has eight columns, so that what goes to the other block is whole
  // rows of a chunk: that costs by lines.
  template <class Rows, int kHalfOfColumns>
  __device__ __forceinline__ void dequantize_half(const Row* const (&steps)[kSteps],
                                                  uint32_t tile) const {
    constexpr uint32_t kAhead = 3;  // tokens that are read ahead
    constexpr bool kHasRope = kHalfOfColumns == 1 && Rows::kFormat.rope > 0;
    const uint32_t lane = read_lane_index();
    const uint32_t column = kHalfOfColumns * kHalf + lane * kEight;
    const bool are_codes =
        (kHalfOfColumns + 1) * kHalf <= Rows::kFormat.latent || column < Rows::kFormat.latent;
    const auto state = latent_state<Format>(tile, kHalfOfColumns);
    const Target target(*this, shared.latent_full[state.stage]);
    const uint32_t to = cute::cast_smem_ptr_to_uint(shared.latent[state.stage]) +
                        lane / kVectors * kAtomBytes + lane % kVectors * sizeof(uint4);
    const auto row_of = [&](uint32_t i) -> const Row& { return steps[i / kRows][i % kRows]; };
    Eight<Rows> eights[kTokens];
    uint4 rope[kSteps];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) eights[i].read(row_of(i), column);
#pragma unroll
    for (uint32_t i = 0; i < kTokens; ++i) {
      if (i + kAhead < kTokens) eights[i + kAhead].read(row_of(i + kAhead), column);
      if constexpr (kHasRope) {
        if (i + kAhead == kTokens) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) rope[step] = read_rope<Rows>(steps[step]);
        }
      }
      const uint32_t of_group = i % kSwizzleRows;
      const uint32_t row = (to ^ of_group * sizeof(uint4)) + row_offset(i / kRows, i % kRows);
      target.store(row, scaled<Element>(eights[i].codes, factor_of<Rows>(eights[i].scale)),
                   are_codes);
    }
    if constexpr (kHasRope) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) store_rope(step, tile, rope[step]);
    }
  }

 private:
  static constexpr uint32_t kTokens = Staging::kTokens / kCluster;  // of a warp in a tile

  // A lane has sixteen columns of a token, which have one scale. Which eight come first depends on
  // the lane, so that neither loads nor stores of a warp meet in a bank.
  struct LaneColumns {
    __device__ __forceinline__ explicit LaneColumns(uint32_t lane) : half(lane / (kWarp / 2)) {
      const uint32_t is_second_first = (lane >> 2 ^ lane >> 3 ^ lane >> 4) & 1;
      first = lane * kLaneColumns + is_second_first * kEight;
    }
    __device__ __forceinline__ uint32_t second() const { return first ^ kEight; }
    // From the start of a token in a half of a tile to the first columns, without the swizzle.
    __device__ __forceinline__ uint32_t offset() const {
      const uint32_t in_half = first % kHalf;
      return in_half / kChunk * kAtomBytes + in_half % kChunk / kEight * sizeof(uint4);
    }

    const uint32_t half;
    uint32_t first;
  };

  // Eight columns of a token as they are stored, and their scale.
  template <class Rows>
  struct Eight {
    __device__ __forceinline__ void read(const Row& row, uint32_t column) {
      codes = codes_of<Rows>(row.bytes, column);
      scale = scale_of<Rows>(row.bytes, column);
    }

    Codes<Rows> codes;
    StoredScale<Rows> scale;
  };

  // A lane's vector of the rope columns of a step's tokens.
  template <class Rows>
  static __device__ __forceinline__ uint4 read_rope(const Row* rows) {
    const uint32_t lane = read_lane_index();
    return rope_of<Rows, Element>(rows[lane / kVectors].bytes, lane % kVectors);
  }

  // From the first token of a half of a tile to the k-th token of a step.
  __device__ __forceinline__ uint32_t row_offset(int step, uint32_t k) const {
    const uint32_t first = first_token + step * kRows;
    const uint32_t of_group = (step * kRows + k) % kSwizzleRows;
    return first / kSwizzleRows * (kHalfChunks * kAtomBytes) + of_group * kRowBytes;
  }

  // The rope columns are a chunk of keys, or the last chunk of the latent: a lane has a vector.
  __device__ __forceinline__ void store_rope(int step, uint32_t tile, const uint4& values) const {
    const uint32_t lane = read_lane_index();
    const uint32_t k = lane / kVectors;
    const uint32_t vector = lane % kVectors;
    if constexpr (Format::kHasKeyChunk) {
      const uint32_t token = first_token + step * kRows + k;
      const int rope = rope_state<Format>(tile).stage;
      const Target target(*this, shared.rope_full[rope]);
      target.store(cute::cast_smem_ptr_to_uint(shared.rope[rope]) + token * kRowBytes +
                       (vector ^ token % kVectors) * sizeof(uint4),
                   values);
    } else {
      const auto state = latent_state<Format>(tile, 1);
      const Target target(*this, shared.latent_full[state.stage]);
      const uint32_t of_group = (step * kRows + k) % kSwizzleRows;
      target.store(cute::cast_smem_ptr_to_uint(shared.latent[state.stage]) +
                       (kHalfChunks - 1) * kAtomBytes + row_offset(step, k) +
                       (vector ^ of_group) * sizeof(uint4),
                   values);
    }
  }

  // Stores vectors into this block's shared memory, and to the same place in the other's, whose
  // barrier counts them.
  class Target {
   public:
    __device__ __forceinline__ Target(const RowDequantizer& dequantizer,
                                      const TransactionBarrier& full) {
      if constexpr (kCluster > 1) {
        const uint32_t own = cute::cast_smem_ptr_to_uint(&full);
        full_ = cute::set_block_rank(own, dequantizer.rank ^ 1);
        other_ = full_ - own;
      }
    }

    __device__ __forceinline__ void store(uint32_t to, const uint4& vector,
                                          bool is_wanted = true) const {
      if constexpr (kCluster == 1) {
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %5, 0; @p st.shared.v4.b32 [%0], {%1, %2, %3, %4}; }" ::
                "r"(to),
            "r"(vector.x), "r"(vector.y), "r"(vector.z), "r"(vector.w),
            "r"(static_cast<uint32_t>(is_wanted)));
      } else if (is_wanted) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(vector.x),
                     "r"(vector.y), "r"(vector.z), "r"(vector.w));
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
            "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to + other_),
            "r"(vector.x), "r"(vector.y), "r"(vector.z), "r"(vector.w), "r"(full_));
      }
    }

   private:
    uint32_t full_;
    uint32_t other_;
  };
  static_assert(kCluster <= 2);
};

}  // namespace mla::sm90::rows_m64
