#include "cpu/decode/plan.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "common/text.h"
#include "cpu/attention.h"

namespace mla::cpu::decode {
namespace {

constexpr int32_t kTag = 0x616c6d31;
// Fewer items leave threads idle; more cost partial results, and Q is packed for each.
constexpr int64_t kTargetItems = 32;
constexpr int64_t kLeastChunk = 512;  // a shorter one is not worth its partial results
constexpr int64_t kInvariantChunk = 1024;
constexpr int64_t kInvariantSplits = 8;
constexpr int64_t kMostSplits = 64;     // in a request
constexpr int64_t kChunkMultiple = 64;  // keeps splits in whole blocks of tokens

int64_t most_splits(const PlanShape& shape) {
  if (shape.max_splits > 0) return std::min(shape.max_splits, kMostSplits);
  return shape.batch_invariant ? kInvariantSplits : kMostSplits;
}

// Returns the splits of all requests to aim at. Many items need splits only where lengths are very
// uneven.
int64_t target_splits(const PlanShape& shape) {
  return std::max<int64_t>(1, kTargetItems / std::max<int64_t>(1, shape.row_blocks));
}

// For requests of 8192 and 100 tokens and 32 splits, 8292 / 32 is below 512: there are 16 splits of
// 512, and the 100 stay whole.
int64_t balanced_chunk(const PlanShape& shape, const int32_t* seq_lens) {
  int64_t total = 0;
  for (int64_t b = 0; b < shape.batch; ++b) total += seq_lens[b];
  return std::max(kLeastChunk, ceil_div(total, target_splits(shape)));
}

void split_request(int64_t length, int64_t wanted_splits, PlanEntry& entry) {
  const int64_t chunk =
      round_up(std::max<int64_t>(1, ceil_div(length, wanted_splits)), kChunkMultiple);
  entry.chunk = static_cast<int32_t>(std::min<int64_t>(chunk, INT32_MAX));
  entry.splits = static_cast<int32_t>(std::max<int64_t>(1, ceil_div(length, entry.chunk)));
}

// A set of requests; a few of them need no allocation.
class Requests {
 public:
  explicit Requests(int64_t batch) {
    if (batch <= kFew) return;
    many_.resize(static_cast<size_t>(ceil_div(batch, 64)));
    words_ = many_.data();
  }

  // Returns false where it has the request already.
  bool insert(size_t request) {
    uint64_t& word = words_[request / 64];
    const uint64_t bit = uint64_t{1} << request % 64;
    const bool is_new = (word & bit) == 0;
    word |= bit;
    return is_new;
  }

 private:
  static constexpr int64_t kFew = 512;
  uint64_t few_[kFew / 64] = {};
  std::vector<uint64_t> many_;
  uint64_t* words_ = few_;
};

// Whether a plan has each request once, and items and slots in the order in which make_plan counts
// them. Then every row is written, by one item, and every slot lies in the workspace.
bool is_sound(const PlanShape& shape, const Plan& plan) {
  Requests seen(shape.batch);
  const int64_t most = most_splits(shape);
  int64_t item = 0;
  int64_t slot = 0;
  int64_t split_requests = 0;
  for (int64_t i = 0; i < shape.batch; ++i) {
    const PlanEntry& entry = plan.entries[i];
    if (entry.request < 0 || entry.request >= shape.batch) return false;
    if (!seen.insert(static_cast<size_t>(entry.request))) return false;
    if (entry.splits < 1 || entry.splits > most || entry.chunk < 1) return false;
    if (entry.first_item != item || entry.first_slot != slot) return false;
    item += entry.splits * shape.row_blocks;
    if (entry.splits == 1) continue;
    if (split_requests != i || entry.chunk % kChunkMultiple != 0) return false;
    slot += entry.splits;
    ++split_requests;
  }
  return item == plan.header->items && split_requests == plan.header->split_requests &&
         slot <= plan.header->slots;
}

}  // namespace

int64_t plan_slots(const PlanShape& shape) {
  const int64_t most = most_splits(shape);
  if (most == 1) return 0;
  const int64_t each = saturating_product({shape.batch, most});
  if (shape.batch_invariant) return each;
  // A request is split from 1.5 chunks on, rounding to whole chunks adds at most a third to those,
  // and all requests together have target_splits chunks.
  const int64_t target = target_splits(shape);
  return target == 1 ? 0 : std::min(each, target * 4 / 3);
}

int64_t plan_bytes(const PlanShape& shape) {
  return static_cast<int64_t>(sizeof(PlanHeader)) +
         shape.batch * static_cast<int64_t>(sizeof(PlanEntry));
}

void make_plan(const PlanShape& shape, const int32_t* seq_lens, Buffer buffer) {
  PlanHeader& header = *static_cast<PlanHeader*>(buffer.data);
  PlanEntry* const entries = reinterpret_cast<PlanEntry*>(&header + 1);
  PlanEntry* const end = entries + shape.batch;
  const int64_t most = most_splits(shape);
  const int64_t target_chunk =
      shape.batch_invariant ? kInvariantChunk : balanced_chunk(shape, seq_lens);
  for (int64_t b = 0; b < shape.batch; ++b) {
    PlanEntry& entry = entries[b];
    entry = {static_cast<int32_t>(b), 0, 0, 1, 0};
    const int64_t length = seq_lens[b];
    const int64_t wanted = shape.batch_invariant ? ceil_div(length, target_chunk)
                                                 : (2 * length + target_chunk) / (2 * target_chunk);
    if (shape.batch_invariant && wanted <= most) {
      entry.chunk = kInvariantChunk;
      entry.splits = static_cast<int32_t>(std::max<int64_t>(1, wanted));
    } else {
      split_request(length, std::clamp<int64_t>(wanted, 1, most), entry);
    }
  }
  // Split requests come first, because the items that combine them count from there; then the
  // longest ones, so that threads finish together.
  std::sort(entries, end, [](const PlanEntry& a, const PlanEntry& b) {
    return std::make_tuple(a.splits == 1, -a.chunk, a.request) <
           std::make_tuple(b.splits == 1, -b.chunk, b.request);
  });
  int64_t item = 0;
  int32_t slot = 0;
  int32_t split_requests = 0;
  for (PlanEntry* entry = entries; entry != end; ++entry) {
    entry->first_item = static_cast<int32_t>(item);
    entry->first_slot = slot;
    item += entry->splits * shape.row_blocks;
    if (entry->splits == 1) continue;
    slot += entry->splits;
    ++split_requests;
  }
  header = {kTag,
            static_cast<int32_t>(shape.batch),
            static_cast<int32_t>(shape.rows),
            static_cast<int32_t>(plan_slots(shape)),
            split_requests,
            static_cast<int32_t>(item)};
}

Status read_plan(const PlanShape& shape, ConstBuffer buffer, Plan* plan) {
  const PlanHeader* header = static_cast<const PlanHeader*>(buffer.data);
  if (header->tag != kTag) {
    return Status::error(MLA_WORKSPACE, "plan", "memory without a plan", "what plan wrote");
  }
  const int64_t slots = plan_slots(shape);
  if (header->batch != shape.batch || header->rows != shape.rows || header->slots != slots) {
    return Status::error(MLA_WORKSPACE, "plan",
                         text("a plan for ", header->batch, " requests of ", header->rows,
                              " rows with ", header->slots, " split slots"),
                         text("one for ", shape.batch, " requests of ", shape.rows, " rows with ",
                              slots, " split slots"));
  }
  *plan = {header, reinterpret_cast<const PlanEntry*>(header + 1)};
  if (!is_sound(shape, *plan)) {
    return Status::error(MLA_WORKSPACE, "plan", "a damaged plan", "what plan wrote");
  }
  return {};
}

}  // namespace mla::cpu::decode
