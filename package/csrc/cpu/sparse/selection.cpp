#include "cpu/sparse/selection.h"

#include <string>

#include "common/arithmetic.h"
#include "common/text.h"

namespace mla::cpu::sparse {
namespace {

std::string place(const char* name, bool batched, int64_t b, int64_t s, int64_t i = -1) {
  return text(name, "[", batched ? text(b, ", ") : "", s, i < 0 ? "" : text(", ", i), "]");
}

// The loop has no early exit, so that it vectorises.
bool any_at_least(const int32_t* values, int64_t n, int32_t limit) {
  int found = 0;
  for (int64_t i = 0; i < n; ++i) found |= values[i] >= limit;
  return found != 0;
}

}  // namespace

Status Selection::check(int64_t batch, int64_t q_len, bool batched) const {
  const bool bounded = slots <= kMaxInt;
  const int32_t limit = bounded ? static_cast<int32_t>(slots) : 0;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < q_len; ++s) {
      const int64_t n = length_at(b, s);
      if (n < 0 || n > topk) {
        return Status::error(MLA_RANGE, place(length_name, batched, b, s), text(n),
                             text("0 to ", topk));
      }
      const int32_t* row = at(b, s);
      if (!bounded || !any_at_least(row, n, limit)) continue;
      int64_t i = 0;
      while (row[i] < limit) ++i;
      return Status::error(MLA_RANGE, place(indices_name, batched, b, s, i), text(row[i]),
                           text("slots below ", slots, ", or negative for none"));
    }
  }
  return {};
}

}  // namespace mla::cpu::sparse
