#include "launcher/arguments/memory.h"

namespace mla::launcher {
namespace {

Steps steps_of(const Region& region, const int64_t* dims) {
  Steps steps;
  steps.row = region.row;
  if (region.binding == nullptr) return steps;
  const int64_t* field = region.fields;
  for (int i = 0; i < region.binding->outer; ++i) {
    const int64_t stride = region.binding->strided[i] ? *++field : 1;
    steps.add(dims[region.binding->dims[i]], stride * region.element);
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

PyObject* name_of(Argument argument) {
  return argument.part < 0 ? PyUnicode_FromString(argument.name)
                           : PyUnicode_FromFormat("%s[%d]", argument.name, argument.part);
}

}  // namespace

bool are_apart(const Steps& steps) {
  for (int i = 0; i < steps.axes; ++i) {
    int64_t reach = steps.row;
    for (int j = 0; j < steps.axes; ++j) {
      if (j != i && steps.strides[j] <= steps.strides[i]) {
        reach += (steps.extents[j] - 1) * steps.strides[j];
      }
    }
    if (steps.strides[i] < reach) return false;
  }
  return true;
}

bool Memory::check_pair(const Region& written, const Region& other, const int64_t* dims) const {
  const auto distance = static_cast<int64_t>(other.begin - written.begin);
  if (are_interleaved(steps_of(written, dims), steps_of(other, dims), distance)) return true;
  const Ref name(name_of(other.argument));
  return name &&
         refuse(MLA_UNSUPPORTED, written.argument,
                PyUnicode_FromFormat("memory that %U has too", name.get()),
                PyUnicode_FromString("memory that no other argument has; copy one of the two"));
}

bool Memory::check(const int64_t* dims) const {
  for (uint32_t left = written_; left != 0; left &= left - 1) {
    const Region& written = regions_[__builtin_ctz(left)];
    for (const Region* other = regions_; other != regions_ + count_; ++other) {
      const bool meet = other->begin < written.end && written.begin < other->end;
      if (meet && other != &written && !check_pair(written, *other, dims)) return false;
    }
  }
  return true;
}

}  // namespace mla::launcher
