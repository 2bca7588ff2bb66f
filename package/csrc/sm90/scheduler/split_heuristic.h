// Where the KV of a step is cut into parts.
//
// Requests lie one after the other on a line, each as long as its blocks of KV and an overhead. The
// line is cut at every multiple of a length.
#pragma once

#include <cmath>
#include <cstdint>

#include "sm90/common/tile.h"

namespace mla::sm90 {

struct Cuts {
  // What the queries and the result of a request cost, in blocks.
  static constexpr int64_t kOverhead = 3;

  int64_t length;
  int64_t overhead;  // of a request
  int64_t align;     // cuts lie between so many blocks of a request

  // Parts of the same cost.
  static MLA_HOST_DEVICE Cuts anywhere(int64_t total, int64_t parts) {
    const int64_t length = total > parts ? ceil_div(total, parts) : 1;
    return {length, kOverhead, alignment(length)};
  }

  // Parts that end where requests of `cost` do, or whole fractions of them, where they are little
  // longer.
  MLA_HOST_DEVICE void move_to_ends(int64_t cost) {
    const int64_t longer =
        length > cost ? ceil_div(length, cost) * cost : ceil_div(cost, cost / length);
    if (longer > longest()) return;
    length = longer;
    align = alignment(length);
  }

  // Equal requests, cut into `max_splits` pieces each at most; 0: into as many as there are parts,
  // but no more than are useful. Where there is a part for each, they are cut evenly: what one
  // piece of a request costs beside its blocks, every one does. `rows` of queries each.
  static MLA_HOST_DEVICE Cuts of_equal(int64_t requests, int64_t blocks, int64_t parts,
                                       int64_t max_splits, int64_t rows) {
    const int64_t cost = blocks + kOverhead;
    Cuts cuts = anywhere(requests * cost, parts);
    if (requests > 0 && requests <= parts) {
      int64_t pieces = parts / requests;
      int64_t most = useful_pieces(requests, blocks, parts, rows);
      if (max_splits > 0 && max_splits < most) most = max_splits;
      const bool are_fewer = most < pieces;
      if (are_fewer) pieces = most;
      int64_t piece = ceil_div(blocks, pieces);
      piece = piece > 0 ? ceil_div(piece, alignment(piece)) * alignment(piece) : 1;
      if (are_fewer || max_splits == 1 || piece <= cuts.longest()) return {piece, 0, 1};
    } else if (max_splits == 0) {
      cuts.move_to_ends(cost);
    }
    if (max_splits == 1) {
      cuts.length = ceil_div(cuts.length, cost) * cost;
    } else if (max_splits > 1) {
      // Cuts that lie so far apart part a request at most this often.
      const int64_t least = ceil_div(cost, max_splits - 1);
      if (cuts.length < least) cuts.length = least;
    }
    return cuts;
  }

  // Whether equal requests are cut in two, with a part for each piece.
  MLA_HOST_DEVICE bool in_pairs(int64_t blocks) const {
    return overhead == 0 && cost(blocks) == 2 * length;
  }

  // Of a request, on the line.
  MLA_HOST_DEVICE int64_t cost(int64_t blocks) const {
    return overhead > 0 ? blocks + overhead : ceil_div(blocks > 0 ? blocks : 1, length) * length;
  }

 private:
  static constexpr int64_t kAlignedBlocks = 16;  // longer parts are cut between pairs of blocks
  static constexpr int64_t kLonger = 16;         // a part may be longer by one part in so many

  // Pieces cost their blocks, and all together the writing and merging of what they are: as much
  // as kMerge blocks if every part has one of kTileRows rows.
  static MLA_HOST_DEVICE int64_t useful_pieces(int64_t requests, int64_t blocks, int64_t parts,
                                               int64_t rows) {
    constexpr double kMerge = 2;
    const int64_t tile_rows = rows < 1 ? 1 : rows < kTileRows ? rows : kTileRows;
    const double merge = kMerge * static_cast<double>(tile_rows * requests) / kTileRows;
    const double pieces = std::sqrt(static_cast<double>(blocks * parts) / merge);
    return pieces > 1 ? static_cast<int64_t>(pieces + 0.5) : 1;
  }

  static MLA_HOST_DEVICE int64_t alignment(int64_t length) {
    return length >= kAlignedBlocks ? 2 : 1;
  }
  MLA_HOST_DEVICE int64_t longest() const { return length + length / kLonger; }
};

}  // namespace mla::sm90
