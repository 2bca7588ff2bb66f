// Several callers share the threads of the pool; prints what went wrong and exits with 1. Built
// with ThreadSanitizer, it also fails where two threads race.
#include "cpu/pool.h"

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bare_host.h"

int processors() { return 4; }

namespace {

using namespace mla;
using cpu::Scratch;

constexpr int kCallers = 3;
constexpr int kJobs = 400;
constexpr int64_t kItems = 24;
constexpr int64_t kLongEnough = 1'000'000;  // nanoseconds, so that every helper may join

std::atomic<int> failures{0};

void check(bool passed, const std::string& what) {
  if (passed) return;
  std::printf("FAILED: %s\n", what.c_str());
  ++failures;
}

// Each item writes its own result and a row of the thread's scratch memory, which no lock guards.
void compute(int seed) {
  std::vector<int64_t> results(kItems, -1);
  const Status status =
      cpu::parallel(kItems, kLongEnough, [&](int64_t item, const Scratch& scratch) {
        scratch.rows[0] = static_cast<float>(seed + item);
        for (int spin = 0; spin < (item % 5 == 0 ? 3000 : 200); ++spin)
          scratch.rows[1 + spin % 8] = scratch.rows[0];
        results[item] = static_cast<int64_t>(scratch.rows[1]);
      });
  check(status.ok(), "a job without an error");
  for (int64_t i = 0; i < kItems; ++i) check(results[i] == seed + i, "the result of an item");
}

// Whichever threads meet the error, the caller gets it, and all of them have left the job.
void fail() {
  const Status status = cpu::parallel(kItems, kLongEnough, [](int64_t item, const Scratch&) {
    if (item >= 2) throw std::runtime_error("item");
  });
  check(!status.ok() && std::string(last_error()).find("item") != std::string::npos,
        "the error of an item");
}

}  // namespace

int main() {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([caller] {
      for (int job = 0; job < kJobs; ++job) {
        compute(caller * kJobs + job);
        if (job % 8 == 0) fail();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  return failures == 0 ? 0 : 1;
}
