// A cache format that has a row and no kernel of its own: the engine reads what its row says.
// Prints what differs and exits with 1.
#include <cmath>
#include <cstdio>
#include <vector>

#include "cpu/isa/units/units.h"

using namespace mla;

constexpr int kGroup = 64;
constexpr int kGroups = kLatent / kGroup;

// The codes of e4m3, the scales and the rope columns are those of a token.
struct Row {
  uint8_t latent[kLatent];
  float scales[kGroups];
  uint16_t rope[kRope];
};

constexpr CacheFormat format() {
  CacheFormat format = cache_format(DType::fp8_ds_mla);
  format.name = "groups_of_64";
  format.scale_group = kGroup;
  format.scale_bytes = sizeof(Row::scales);
  format.rope_offset = offsetof(Row, rope);
  format.row_bytes = format.token_bytes = sizeof(Row);
  return format;
}

Row row_of(int token) {
  Row row;
  for (int i = 0; i < kLatent; ++i) {
    row.latent[i] = fp32_to_e4m3(static_cast<float>((i * 7 + token * 3) % 15 - 7));
  }
  for (int i = 0; i < kGroups; ++i) row.scales[i] = std::ldexp(1.0f, (i + token) % 5 - 2);
  for (int i = 0; i < kRope; ++i) row.rope[i] = fp32_to_bf16(static_cast<float>(i % 9 - 4) / 4);
  return row;
}

float value_of(const Row& row, int column) {
  return column < kLatent ? e4m3_to_fp32(row.latent[column]) * row.scales[column / kGroup]
                          : bf16_to_fp32(row.rope[column - kLatent]);
}

// A query of zeros weighs all tokens alike, so that the result is their mean.
bool attends(const CacheFormat& format, const std::vector<Row>& rows) {
  const float query[kHeadDim] = {};
  const void* const latent[] = {query};
  const void* const rope[] = {query + kLatent};
  std::vector<std::byte> memory(cpu::kBaseline.scratch_bytes + 64);
  float o[kLatent];
  float lse = 0;
  cpu::AttendItem item;
  item.format = &format;
  item.rows = 1;
  item.q_latent = latent;
  item.q_rope = rope;
  item.kv.latent = reinterpret_cast<const std::byte*>(rows.data());
  item.kv.rope = item.kv.latent + format.rope_offset;
  item.kv.scales = item.kv.latent + format.scale_offset;
  item.kv.latent_token_stride = item.kv.rope_token_stride = format.row_bytes;
  item.kv.scales_token_stride = format.row_bytes;
  item.kv.page_size = item.end = static_cast<int64_t>(rows.size());
  item.o = o;
  item.o_stride = kLatent;
  item.lse = &lse;
  item.scratch = memory.data() + 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
  cpu::kBaseline.attend(item);
  bool same = true;
  for (int i = 0; i < kLatent; ++i) {
    float mean = 0;
    for (const Row& row : rows) mean += value_of(row, i) / static_cast<float>(rows.size());
    if (std::fabs(o[i] - mean) <= 1e-5f) continue;
    std::printf("attend, column %d: %g, not %g\n", i, o[i], mean);
    same = false;
  }
  return same;
}

bool gathers(const CacheFormat& format, const Row& row) {
  float values[kHeadDim];
  const auto* const bytes = reinterpret_cast<const std::byte*>(&row);
  const cpu::StoredRow stored = {bytes, bytes + format.rope_offset, bytes + format.scale_offset};
  cpu::kBaseline.gather_row(format, stored, 1, values);
  bool same = true;
  for (int i = 0; i < kHeadDim; ++i) {
    if (values[i] == value_of(row, i)) continue;
    std::printf("gather_row, column %d: %g, not %g\n", i, values[i], value_of(row, i));
    same = false;
  }
  return same;
}

int main() {
  constexpr CacheFormat kFormat = format();
  std::vector<Row> rows;
  for (int token = 0; token < 70; ++token) rows.push_back(row_of(token));
  const bool same = gathers(kFormat, rows[1]) && attends(kFormat, rows);
  return same ? 0 : 1;
}
