// Dequantizes rows of bytes, some at a time by a warp, from its buffers into the KV pipelines, of
// the other block of a cluster too.
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

  SharedStorage<Format>& shared;
  const int rank;
  const uint32_t first_token;  // of a tile, that the warp dequantizes

  // The `step`-th tokens that a warp dequantizes of a tile.
  template <class Rows>
  __device__ __forceinline__ void dequantize(const Row (&rows)[kRows], int step,
                                             uint32_t tile) const {
    constexpr bool kAllAreCodes = Rows::kFormat.latent == kLatent;
    constexpr bool kHasRope = Rows::kFormat.rope > 0;
    const LaneColumns columns(read_lane_index());
    const bool first_are_codes = kAllAreCodes || columns.first < Rows::kFormat.latent;
    const bool second_are_codes = kAllAreCodes || columns.second() < Rows::kFormat.latent;
    const auto state = latent_state<Format>(tile, columns.half);
    const Target target(*this, shared.latent_full[state.stage]);
    const uint32_t to = cute::cast_smem_ptr_to_uint(shared.latent[state.stage]) + columns.offset();
    // A token is read while the one before it is dequantized. Of blocks that store for each other,
    // and with scales of a page, which take registers, that is only the first half of it.
    constexpr bool kReadsWhole = kCluster == 1 && !Rows::kHasPageScales;
    Eight<Rows> first[kRows], second[kRows];
    uint4 rope;
    first[0].read(rows[0], columns.first);
    if constexpr (kReadsWhole) read_second(rows[0], columns, second[0]);
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      if constexpr (!kReadsWhole) read_second(rows[k], columns, second[k]);
      if (k + 1 < kRows) {
        first[k + 1].read(rows[k + 1], columns.first);
        if constexpr (kReadsWhole) read_second(rows[k + 1], columns, second[k + 1]);
      } else if constexpr (kHasRope) {
        rope = rope_of<Rows, Element>(rows[read_lane_index() / kVectors].bytes,
                                      read_lane_index() % kVectors);
      }
      const uint32_t of_group = (step * kRows + k) % kSwizzleRows;
      const uint32_t row = (to ^ of_group * sizeof(uint4)) + row_offset(step, k);
      auto factor = factor_of<Rows>(first[k].scale);
      target.store(row, scaled<Element>(first[k].codes, factor), first_are_codes);
      if constexpr (!LaneColumns::kHaveOneScale) factor = factor_of<Rows>(second[k].scale);
      target.store(LaneColumns::second_offset(row), scaled<Element>(second[k].codes, factor),
                   second_are_codes);
    }
    if constexpr (kHasRope) store_rope(step, tile, rope);
  }

 private:
  // A lane has eight columns of a token twice. Alone, a block takes sixteen that follow each other
  // and have one scale, and which eight come first depends on the lane, so that neither loads nor
  // stores of a warp meet in a bank. What blocks store for each other goes in whole rows of a
  // chunk, so that the second eight are two chunks further.
  struct LaneColumns {
    static constexpr bool kHaveOneScale = kCluster == 1;
    static constexpr uint32_t kApart = 2 * kChunk;
    static constexpr uint32_t kHalfWarp = kWarp / 2;

    __device__ __forceinline__ explicit LaneColumns(uint32_t lane) : half(lane / kHalfWarp) {
      if constexpr (kHaveOneScale) {
        const uint32_t is_second_first = (lane >> 2 ^ lane >> 3 ^ lane >> 4) & 1;
        first = lane * kLaneColumns + is_second_first * kEight;
      } else {
        first = half * kHalf + lane % kHalfWarp * kEight;
      }
    }
    __device__ __forceinline__ uint32_t second() const {
      return kHaveOneScale ? first ^ kEight : first + kApart;
    }
    // From the start of a token in a half of a tile to the first columns, without the swizzle.
    __device__ __forceinline__ uint32_t offset() const {
      const uint32_t in_half = first % kHalf;
      return in_half / kChunk * kAtomBytes + in_half % kChunk / kEight * sizeof(uint4);
    }
    static __device__ __forceinline__ uint32_t second_offset(uint32_t first_offset) {
      return kHaveOneScale ? first_offset ^ sizeof(uint4) : first_offset + 2 * kAtomBytes;
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

  template <class Rows>
  static __device__ __forceinline__ void read_second(const Row& row, const LaneColumns& columns,
                                                     Eight<Rows>& second) {
    if constexpr (LaneColumns::kHaveOneScale) {
      second.codes = codes_of<Rows>(row.bytes, columns.second());
    } else {
      second.read(row, columns.second());
    }
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
