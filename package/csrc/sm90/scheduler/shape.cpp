#include "sm90/scheduler/shape.h"

#include <algorithm>

#include "common/checks.h"
#include "cuda/launch.h"
#include "sm90/common/refuse.h"

namespace mla::sm90 {
namespace {

constexpr int64_t kMaxSplits = 1024;

// A batch-invariant request has this many parts at most, if the caller sets no limit.
constexpr int64_t kInvariantSplits = 32;

}  // namespace

Status describe_shape(const Queries& q, Shape* shape) {
  MLA_TRY(check_extents({{"batch", q.batch}, {"q_len", q.q_len}}));
  if (q.num_heads < 1 || q.num_heads > kMaxHeads) {
    return refuse("num_heads", text(q.num_heads), text("1 to ", kMaxHeads));
  }
  const int64_t rows = saturating_product({q.q_len, q.num_heads});
  if (saturating_product({std::max<int64_t>(q.batch, 1), rows}) > kMaxInt / 2 ||
      q.batch > kMaxInt / 4) {
    return refuse("batch", text(q.batch, " requests of ", q.q_len, " tokens"),
                  text("fewer than 2^30 rows, which are batch x q_len x num_heads"));
  }
  if (q.max_splits > kMaxSplits)
    return refuse("max_splits", text(q.max_splits), text("0 to ", kMaxSplits));
  int sms = 0;
  MLA_TRY(cuda::sm_count(q.device, &sms));
  *shape = {};
  shape->batch = static_cast<int32_t>(q.batch);
  shape->q_len = static_cast<int32_t>(q.q_len);
  shape->num_heads = static_cast<int32_t>(q.num_heads);
  shape->heads = Divisor(static_cast<uint32_t>(q.num_heads));
  shape->rows = static_cast<int32_t>(rows);
  shape->cluster = rows > kTileRows ? 2 : 1;
  shape->groups = static_cast<int32_t>(
      std::max<int64_t>(1, ceil_div<int64_t>(rows, shape->cluster * kTileRows)));
  const int clusters = sms / shape->cluster;
  shape->parts = std::max(1, clusters / shape->groups);
  shape->max_splits = static_cast<int32_t>(q.max_splits == 0 && q.batch_invariant ? kInvariantSplits
                                                                                  : q.max_splits);
  const int64_t partials = shape->max_splits > 1 ? q.batch * shape->max_splits : 0;
  if (partials > kMaxInt / 2) {
    return refuse("max_splits", text(shape->max_splits, " splits of ", q.batch, " requests"),
                  "fewer than 2^30 splits in all");
  }
  return {};
}

}  // namespace mla::sm90
