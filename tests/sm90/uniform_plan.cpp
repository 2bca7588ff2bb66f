// Checks the plan of equal requests part by part; prints what is wrong and exits with 1.
#include "sm90/scheduler/uniform_plan.h"

#include <cstdio>
#include <set>

namespace {

using mla::sm90::Boundary;
using mla::sm90::UniformPlan;

struct Problem {
  int requests, blocks, parts, max_splits;
};

bool has_failed = false;

void fail(const Problem& p, const char* what, int part) {
  std::printf("%d requests of %d blocks in %d parts, up to %d splits: part %d: %s\n", p.requests,
              p.blocks, p.parts, p.max_splits, part, what);
  has_failed = true;
}

// Every block of every request is in one part, in order; every split of a request has a partial
// result of its own, and those of a request have consecutive indices.
void check(const Problem& p) {
  const UniformPlan plan(p.requests, p.blocks, p.parts, p.max_splits, 64);
  std::set<int> partials;
  Boundary at = {0, 0, 0, 0};
  bool any_is_split = false;
  for (int part = 0; part < p.parts; ++part) {
    const Boundary begin = plan.boundary(part);
    const Boundary end = plan.boundary(part + 1);
    if (begin.request != at.request || begin.block != at.block || begin.split != at.split) {
      return fail(p, "does not begin where the part before ends", part);
    }
    while (at.request < end.request || (at.request == end.request && at.block < end.block)) {
      const int splits = plan.partials_of(at.request);
      any_is_split |= splits > 0;
      if (splits == 1) fail(p, "a request in one split is called split", part);
      if (p.max_splits > 0 && splits > p.max_splits) fail(p, "too many splits", part);
      if (splits > 0) {
        const int partial = plan.first_partial_of(at.request) + at.split;
        if (at.split >= splits) fail(p, "more splits than the plan says", part);
        if (partial < 0 || partial >= UniformPlan::max_partials(p.parts))
          fail(p, "a partial result out of range", part);
        if (!partials.insert(partial).second) fail(p, "a partial result of two splits", part);
      } else if (at.split != 0) {
        fail(p, "a split of a request that is not split", part);
      }
      if (at.request == end.request) {
        at = {at.request, end.block, at.split + 1, 0};
      } else {
        if (splits > 0 && at.split + 1 != splits) fail(p, "fewer splits than the plan says", part);
        at = {at.request + 1, 0, 0, 0};
      }
    }
    if (at.request == end.request && at.block == 0 && end.split == 0) at.split = 0;
  }
  if (at.request != p.requests || at.block != 0) fail(p, "is not the end", p.parts);
  if (any_is_split != plan.splits()) fail(p, "splits() says otherwise", p.parts);
}

// No part is much longer than the others if splits have no limit.
void check_balance(const Problem& p) {
  const UniformPlan plan(p.requests, p.blocks, p.parts, p.max_splits, 64);
  constexpr int64_t kOverhead = mla::sm90::SplitHeuristic::kOverhead;
  const int64_t cost = p.blocks + kOverhead;
  const auto place = [&](const Boundary& at) {
    return at.request * cost + (at.block > 0 ? at.block + kOverhead : 0);
  };
  const int64_t fair = (p.requests * cost + p.parts - 1) / p.parts;
  for (int part = 0; part < p.parts; ++part) {
    const int64_t length = place(plan.boundary(part + 1)) - place(plan.boundary(part));
    if (length > fair + fair / 16 + 2 * kOverhead + 2) fail(p, "much longer than its share", part);
  }
}

// Each request has `splits` splits of `blocks` blocks, but for the last one.
void check_even(const Problem& p, int splits, int blocks) {
  const UniformPlan plan(p.requests, p.blocks, p.parts, p.max_splits, 64);
  for (int part = 0; part < p.requests * splits; ++part) {
    const Boundary at = plan.boundary(part);
    if (at.request != part / splits || at.block != part % splits * blocks) {
      return fail(p, "not cut evenly", part);
    }
  }
}

}  // namespace

int main() {
  check_even({64, 32, 132, 0}, 2, 16);
  check_even({128, 32, 132, 0}, 1, 32);
  check_even({1, 32, 132, 0}, 32, 1);
  check_even({4, 32, 132, 0}, 16, 2);
  check_even({3, 100, 132, 4}, 4, 25);
  for (const int requests : {0, 1, 2, 3, 5, 7, 64, 65, 66, 67, 128, 131, 132, 133, 200, 4096}) {
    for (const int blocks : {0, 1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 100}) {
      for (const int parts : {1, 2, 3, 7, 66, 132, 144}) {
        for (const int max_splits : {0, 1, 2, 3, 5, 32}) {
          check({requests, blocks, parts, max_splits});
        }
        check_balance({requests, blocks, parts, 0});
      }
    }
  }
  return has_failed;
}
