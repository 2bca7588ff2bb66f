// Where the KV of a step is cut into parts of equal cost.
//
// Requests lie one after the other on a line, each as long as its KV blocks and an overhead. The
// line is cut at every multiple of a length. Example: 2 requests of 29 blocks, 4 parts: each
// request costs 29 + 3, the line is 64 long and is cut every 16.
#pragma once

#include <cmath>
#include <cstdint>

#include "sm90/common/tile.h"

namespace mla::sm90 {

struct SplitHeuristic {
  // The queries and the result of a request cost as much as so many KV blocks.
  static constexpr int64_t kOverhead = 3;

  int64_t length;    // of a part
  int64_t overhead;  // of a request
  int64_t longest;   // a part may be so long to end where a request does

  // Parts of equal cost, wherever that cuts requests.
  static MLA_HOST_DEVICE SplitHeuristic anywhere(int64_t total, int64_t parts, int64_t rows) {
    const int64_t length = total > parts ? ceil_div(total, parts) : 1;
    return {length, kOverhead, length + longer_by(length, rows)};
  }

  // Lets parts end where requests of `cost` do, or whole fractions of them, if that makes parts
  // little longer.
  MLA_HOST_DEVICE void move_to_ends(int64_t cost) {
    const int64_t longer =
        length > cost ? ceil_div(length, cost) * cost : ceil_div(cost, cost / length);
    if (longer <= longest) length = longer;
  }

  // Equal requests with `rows` query rows each, split `max_splits` times at most; 0: as often as
  // parts allow, but no more than is useful. If there is a part for each request, all are split
  // evenly, since every split of a request has the same cost beside its blocks.
  static MLA_HOST_DEVICE SplitHeuristic of_equal(int64_t requests, int64_t blocks, int64_t parts,
                                                 int64_t max_splits, int64_t rows) {
    const int64_t cost = blocks + kOverhead;
    SplitHeuristic heuristic = anywhere(requests * cost, parts, rows);
    if (requests > 0 && requests <= parts) {
      int64_t splits = parts / requests;
      int64_t most = useful_splits(requests, blocks, parts, rows);
      if (max_splits > 0 && max_splits < most) most = max_splits;
      const bool are_fewer = most < splits;
      if (are_fewer) splits = most;
      const int64_t split = blocks > 0 ? ceil_div(blocks, splits) : 1;
      if (are_fewer || max_splits == 1 || split <= heuristic.longest) return {split, 0, split};
    } else if (max_splits == 0) {
      heuristic.move_to_ends(cost);
    }
    if (max_splits == 1) {
      heuristic.length = ceil_div(heuristic.length, cost) * cost;
    } else if (max_splits > 1) {
      // Cuts that lie so far apart cut a request at most max_splits - 1 times.
      const int64_t least = ceil_div(cost, max_splits - 1);
      if (heuristic.length < least) heuristic.length = least;
    }
    return heuristic;
  }

  // Whether equal requests are split in two, with a part for each split.
  MLA_HOST_DEVICE bool in_pairs(int64_t blocks) const {
    return overhead == 0 && cost(blocks) == 2 * length;
  }

  // The length of a request on the line.
  MLA_HOST_DEVICE int64_t cost(int64_t blocks) const {
    return overhead > 0 ? blocks + overhead : ceil_div(blocks > 0 ? blocks : 1, length) * length;
  }

 private:
  // Splits cost their blocks, and all together the writing and combining of their results: as much
  // as kCombine blocks if every part writes one of kTileRows rows. The sum is least at the root of
  // the quotient.
  static MLA_HOST_DEVICE int64_t useful_splits(int64_t requests, int64_t blocks, int64_t parts,
                                               int64_t rows) {
    constexpr double kCombine = 2;
    const int64_t tile_rows = rows < 1 ? 1 : rows < kTileRows ? rows : kTileRows;
    const double combine = kCombine * static_cast<double>(tile_rows * requests) / kTileRows;
    const double splits = std::sqrt(static_cast<double>(blocks * parts) / combine);
    return splits > 1 ? static_cast<int64_t>(splits + 0.5) : 1;
  }

  // How much longer than `length` a part may be to end where a request does, which saves partial
  // results. A longer part costs little where memory is the bound, since the other parts leave it
  // more of that. With more than a tile of rows, computing is the bound.
  static MLA_HOST_DEVICE int64_t longer_by(int64_t length, int64_t rows) {
    constexpr int64_t kFraction = 16;
    constexpr int64_t kMostBlocks = 6;
    const int64_t blocks = length / kFraction;
    return rows > kTileRows && blocks > kMostBlocks ? kMostBlocks : blocks;
  }
};

}  // namespace mla::sm90
