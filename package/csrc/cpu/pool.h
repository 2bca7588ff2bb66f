#pragma once

#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace mla::cpu {

// The memory of one thread is aligned to 64 bytes, and its contents are undefined. The two together
// stay below 1 MiB, the cache that a thread can count on.
struct Scratch {
  std::byte* isa;  // Isa::scratch_bytes
  float* rows;     // [kMaxRows][kMaxDV]
};

using Work = void (*)(const void* context, int64_t item, const Scratch& scratch);

// Refuses environment variables that cannot be followed.
Status check_environment();

// Starts the threads, so that the first launch does not have to.
Status start_threads();

// Calls work for every item, on this thread and as many others as the expected time is worth.
// @pre What an item computes does not depend on the thread that takes it.
Status run(int64_t items, int64_t nanoseconds, Work work, const void* context);

template <class Body>
Status parallel(int64_t items, int64_t nanoseconds, const Body& body) {
  const Work work = [](const void* context, int64_t item, const Scratch& scratch) {
    (*static_cast<const Body*>(context))(item, scratch);
  };
  return run(items, nanoseconds, work, &body);
}

}  // namespace mla::cpu
