// The schedule of decode: which requests are split, and in what order they start.
#pragma once

#include <cstdint>

#include "common/buffer.h"
#include "common/status.h"

namespace mla::cpu::decode {

struct PlanHeader {
  int32_t tag;
  int32_t batch;
  int32_t rows;            // query rows of a request
  int32_t slots;           // of the workspace
  int32_t split_requests;  // the first entries
  int32_t items;
};

// Split i of a request attends tokens [i * chunk, (i + 1) * chunk), the last one to the end.
struct PlanEntry {
  int32_t request;
  int32_t first_item;
  int32_t first_slot;  // of the workspace, one slot a split; unused by a single split
  int32_t splits;
  int32_t chunk;
};

// What a plan's size and splits depend on besides lengths.
struct PlanShape {
  int64_t batch;
  int64_t rows;  // query rows of a request
  int64_t row_blocks;
  int64_t max_splits;  // of a request; 0: as many as its shape deserves
  bool batch_invariant;
};

struct Plan {
  const PlanHeader* header;
  const PlanEntry* entries;  // [batch]
};

// Slots that any plan of this shape stays within.
int64_t plan_slots(const PlanShape& shape);

int64_t plan_bytes(const PlanShape& shape);

void make_plan(const PlanShape& shape, const int32_t* seq_lens, Buffer buffer);

// Refuses what make_plan did not write for this shape.
Status read_plan(const PlanShape& shape, ConstBuffer buffer, Plan* plan);

}  // namespace mla::cpu::decode
