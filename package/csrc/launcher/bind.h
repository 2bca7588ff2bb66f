// Fills an op's problem struct from Python arguments, refusing what the kernel does not accept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "common/cache_format.h"
#include "launcher/dtype.h"
#include "launcher/limits.h"
#include "launcher/tensor.h"
#include "mla/bindings.h"

namespace mla::launcher {

// What a kernel accepts beyond its op's table.
struct Spec {
  const OpBinding* op;
  const CacheFormat* format;  // of the op's cache; null for an op without one
  int32_t device_type;
  const ElementType* types[kMaxTensors];
  Limits limits[kMaxDims];
  Limits scalar_limits[kMaxScalars];  // of integers
};

struct Buffer {
  void* data = nullptr;
  int64_t bytes = 0;
  bool given = false;
};

inline constexpr int64_t kBufferAlignment = 16;  // of plan and workspace: any type fits

constexpr int32_t max_problem_size() {
  int32_t size = 0;
  for (const OpBinding& op : kOps) size = op.size > size ? op.size : size;
  return size;
}

// Functions that return bool return false with a Python exception set. Arguments must outlive the
// problem, which borrows their memory.
class Problem {
 public:
  explicit Problem(const Spec& spec);

  // Before any tensor; see Call.
  bool use_stream(PyObject* stream) { return call_.use_stream(stream); }

  bool set_tensor(int index, PyObject* value);
  bool set_scalar(int index, PyObject* value);

  // From a dict from names of tensors, dimensions and scalars, any of which may be missing or None;
  // "device" is the ordinal, for when no tensor tells.
  bool set_by_name(PyObject* arguments);

  // None is an empty buffer.
  bool read_buffer(const char* name, PyObject* value, bool written, Buffer* buffer);

  const void* data();
  void* stream() const { return call_.stream(); }

 private:
  bool set_named(PyObject* name, PyObject* value);
  bool set_none(const TensorBinding& binding);
  bool set_pair(const TensorBinding& binding, PyObject* pair);
  bool set_view(const TensorBinding& binding, Argument argument, PyObject* object, int64_t row,
                int32_t offset);
  int64_t row_extent(const TensorBinding& binding) const;
  void derive_rope(const TensorBinding& binding);
  bool set_dim(int dim, int64_t extent, Argument argument);
  bool is_bound(int dim) const { return (bound_dims_ >> dim & 1) != 0; }
  [[gnu::cold]] bool refuse_dim(int dim, int64_t extent, Argument argument) const;
  bool allow_stride(const TensorBinding& binding, Argument argument, const View& view, int index);
  unsigned char* bytes() { return reinterpret_cast<unsigned char*>(words_); }
  int64_t& field_at(int32_t offset) { return words_[offset / sizeof(int64_t)]; }
  [[gnu::cold]] PyObject* shape_text(const TensorBinding& binding) const;

  const Spec& spec_;
  Call call_;
  const ElementType* type_ = nullptr;  // of the tensor being set
  bool partial_ = false;
  uint32_t bound_dims_ = 0;      // a bit each
  Argument dim_from_[kMaxDims];  // the argument that gave the extent, of a bound dimension
  int64_t* const dims_;          // in words_
  int64_t words_[max_problem_size() / sizeof(int64_t)];
};

// Refuses a buffer of fewer bytes than the payload asks for.
bool check_size(const char* name, const Buffer& buffer, int64_t bytes);

}  // namespace mla::launcher
