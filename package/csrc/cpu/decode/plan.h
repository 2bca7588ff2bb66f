// The plan of decode says which requests are split, and in what order they start.
#pragma once

#include <cstdint>

#include "common/buffer.h"
#include "common/status.h"

namespace mla::cpu::decode {

struct PlanHeader {
  int32_t tag;
  int32_t batch;
  int32_t rows;            // of queries in a request
  int32_t slots;           // in the workspace
  int32_t split_requests;  // which are the first entries
  int32_t items;
};

// Split i of a request attends tokens [i * chunk, (i + 1) * chunk), and the last one all to the
// end.
struct PlanEntry {
  int32_t request;
  int32_t first_item;
  int32_t first_slot;  // in the workspace, one slot a split; a single split does not use it
  int32_t splits;
  int32_t chunk;
};

// Beside lengths, a plan's size and splits depend on these.
struct PlanShape {
  int64_t batch;
  int64_t rows;  // of queries in a request
  int64_t row_blocks;
  int64_t max_splits;  // of a request; 0 leaves it to the plan
  bool batch_invariant;
};

struct Plan {
  const PlanHeader* header;
  const PlanEntry* entries;  // [batch]
};

// Returns the slots that every plan of this shape stays within.
int64_t plan_slots(const PlanShape& shape);

int64_t plan_bytes(const PlanShape& shape);

void make_plan(const PlanShape& shape, const int32_t* seq_lens, Buffer buffer);

// Refuses what make_plan did not write for this shape.
Status read_plan(const PlanShape& shape, ConstBuffer buffer, Plan* plan);

}  // namespace mla::cpu::decode
