#include "launcher/arguments/memory.h"

namespace mla::launcher {
namespace {

// The steps of a tensor through its memory, in bytes: outer axes, and a contiguous row.
struct Steps {
  int axes = 0;
  int64_t extents[kMaxOuter];  // each above 1
  int64_t strides[kMaxOuter];
  int64_t row;

  void add(int64_t extent, int64_t stride) {
    if (extent <= 1) return;
    extents[axes] = extent;
    strides[axes++] = stride;
  }
};

Steps steps_of(const Holder& holder, const int64_t* dims) {
  Steps steps;
  steps.row = holder.row;
  if (holder.binding == nullptr) return steps;
  const int64_t* field = holder.fields;
  for (int i = 0; i < holder.binding->outer; ++i) {
    const int64_t stride = holder.binding->strided[i] ? *++field : 1;
    steps.add(dims[holder.binding->dims[i]], stride * holder.element);
  }
  return steps;
}

// Returns the bytes from the first to the last that steps of no multiple of `pitch` reach.
int64_t reach_within(const Steps& steps, int64_t pitch) {
  int64_t reach = steps.row;
  for (int i = 0; i < steps.axes; ++i) {
    const int64_t stride = steps.strides[i];
    if (stride != pitch && stride % pitch != 0) reach += (steps.extents[i] - 1) * stride;
  }
  return reach;
}

// Whether each of two tensors has columns of its own in lines of `pitch` bytes. So have the latent
// and the rope of one packed cache, and two slices of the columns of one buffer.
bool have_own_columns(const Steps& one, const Steps& other, int64_t distance, int64_t pitch) {
  int64_t column = distance % pitch;
  if (column < 0) column += pitch;
  return column >= reach_within(one, pitch) && reach_within(other, pitch) <= pitch - column;
}

// Whether two tensors provably share no byte, `distance` bytes from the first of one to the first
// of the other.
bool are_interleaved(const Steps& one, const Steps& other, int64_t distance) {
  for (const Steps* steps : {&one, &other}) {
    for (int i = steps->axes - 1; i >= 0; --i) {
      const int64_t pitch = steps->strides[i];
      if (pitch > 0 && have_own_columns(one, other, distance, pitch)) return true;
    }
  }
  return false;
}

PyObject* name_of(const Holder& holder) {
  return holder.part < 0 ? PyUnicode_FromString(holder.name)
                         : PyUnicode_FromFormat("%s[%d]", holder.name, holder.part);
}

}  // namespace

bool are_apart(int axes, const int64_t* extents, const int64_t* strides, int64_t row) {
  for (int i = 0; i < axes; ++i) {
    if (extents[i] == 1) continue;
    int64_t reach = row;
    for (int j = 0; j < axes; ++j) {
      const bool within = j != i && strides[j] <= strides[i];
      if (within) reach += (extents[j] - 1) * strides[j];
    }
    if (strides[i] < reach) return false;
  }
  return true;
}

bool Memory::check_one(int written, const int64_t* dims) const {
  const Steps steps = steps_of(holders_[written], dims);
  for (int i = 0; i < count_; ++i) {
    const auto distance = static_cast<int64_t>(begins_[i] - begins_[written]);
    if (i == written || !meet(written, i) ||
        are_interleaved(steps, steps_of(holders_[i], dims), distance)) {
      continue;
    }
    const Ref name(name_of(holders_[i]));
    return name &&
           refuse(MLA_UNSUPPORTED, {holders_[written].name, holders_[written].part},
                  PyUnicode_FromFormat("memory that %U has too", name.get()),
                  PyUnicode_FromString("memory that no other argument has; copy one of the two"));
  }
  return true;
}

}  // namespace mla::launcher
