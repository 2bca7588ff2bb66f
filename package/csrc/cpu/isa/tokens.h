#pragma once

#include "cpu/isa/attend.h"

namespace mla::cpu {
namespace {

struct TokenRow : StoredRow {
  int32_t position;  // in the item's range
};

// Finds the present tokens of a range, in order.
class TokenIterator {
 public:
  TokenIterator(const KvTokens& kv, int64_t begin, int64_t end)
      : kv_(kv), begin_(begin), next_(begin), end_(end) {}

  MLA_ALWAYS_INLINE bool next(TokenRow& row) {
    while (next_ < end_) {
      const int64_t i = next_++;
      if (i >= run_end_ && !start_run(i)) continue;
      row.latent = latent_ + (i - run_begin_) * kv_.latent_token_stride;
      row.rope = rope_ + (i - run_begin_) * kv_.rope_token_stride;
      row.scales = scales_ + (i - run_begin_) * kv_.scales_token_stride;
      row.position = static_cast<int32_t>(i - begin_);
      return true;
    }
    return false;
  }

 private:
  // Finds the tokens of i's page, or one slot; returns false where the slot is absent.
  bool start_run(int64_t i) {
    int64_t page = kv_.fixed_page;
    int64_t offset = 0;
    if (kv_.slots != nullptr) {
      if (kv_.slots[i] < 0) return false;
      page = quotient(kv_.slots[i]);
      offset = kv_.slots[i] - page * kv_.page_size;
      run_begin_ = i;
      run_end_ = i + 1;
    } else if (kv_.page_table != nullptr) {
      const int64_t entry = quotient(i);
      page = kv_.page_table[entry];
      run_begin_ = entry * kv_.page_size;
      run_end_ = run_begin_ + kv_.page_size;
    } else {
      run_end_ = end_;
    }
    latent_ = kv_.latent + page * kv_.latent_page_stride + offset * kv_.latent_token_stride;
    rope_ = kv_.rope + page * kv_.rope_page_stride + offset * kv_.rope_token_stride;
    scales_ = kv_.scales + page * kv_.latent_page_stride + offset * kv_.scales_token_stride;
    return true;
  }

  // Positions and slots are int32, and dividing 32 bits is several times faster than dividing 64.
  MLA_ALWAYS_INLINE int64_t quotient(int64_t i) const {
    if (kv_.page_size > INT32_MAX) return 0;
    return static_cast<uint32_t>(i) / static_cast<uint32_t>(kv_.page_size);
  }

  KvTokens kv_;
  int64_t begin_;
  int64_t next_;
  int64_t end_;
  const std::byte* latent_ = nullptr;  // of token run_begin_
  const std::byte* rope_ = nullptr;
  const std::byte* scales_ = nullptr;
  int64_t run_begin_ = 0;
  int64_t run_end_ = 0;
};

// Prefetches the lines of rows that are wanted soon, a few at a time between the products, which
// leave the memory idle.
class Prefetch {
 public:
  explicit Prefetch(const CacheFormat& format)
      : latent_bytes_(format.has_rope_view() ? format.rope_offset : format.row_bytes),
        row_bytes_(format.row_bytes) {}

  void start(const TokenRow* rows, int count) {
    row_ = rows;
    end_ = rows + count;
    offset_ = 0;
  }

  MLA_ALWAYS_INLINE void lines(int count) {
    for (; count > 0 && row_ != end_; --count) {
      const std::byte* line =
          offset_ < latent_bytes_ ? row_->latent + offset_ : row_->rope + (offset_ - latent_bytes_);
      __builtin_prefetch(line, 0, 2);
      offset_ += kLineBytes;
      if (offset_ >= row_bytes_) {
        offset_ = 0;
        ++row_;
      }
    }
  }

 private:
  static constexpr int kLineBytes = 64;

  int latent_bytes_;  // up to a rope part that lies elsewhere
  int row_bytes_;
  const TokenRow* row_ = nullptr;
  const TokenRow* end_ = nullptr;
  int offset_ = 0;
};

// Gives the present tokens of a range by blocks, and prefetches the next block.
template <int kBlock>
class TokenBlocks {
 public:
  TokenBlocks(const AttendItem& item, int64_t tokens)
      : prefetch(*item.format), tokens_(item.kv, item.begin, item.begin + tokens) {
    fill(blocks_[1]);
  }

  // Returns false after the last block.
  bool advance() {
    current_ ^= 1;
    Block& next = blocks_[current_ ^ 1];
    fill(next);
    prefetch.start(next.rows, next.count);
    return count() > 0;
  }

  int count() const { return blocks_[current_].count; }
  const TokenRow& operator[](int t) const { return blocks_[current_].rows[t]; }

  Prefetch prefetch;

 private:
  struct Block {
    TokenRow rows[kBlock];
    int count = 0;
  };

  void fill(Block& block) {
    block.count = 0;
    while (block.count < kBlock && tokens_.next(block.rows[block.count])) ++block.count;
  }

  TokenIterator tokens_;
  Block blocks_[2];
  int current_ = 0;
};

}  // namespace
}  // namespace mla::cpu
