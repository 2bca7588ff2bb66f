// Fills an op's problem struct from Python arguments, refusing what the kernel does not accept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "common/cache_format.h"
#include "launcher/arguments/limits.h"
#include "launcher/arguments/memory.h"
#include "launcher/tensors/dtype.h"
#include "launcher/tensors/tensor.h"
#include "mla/bindings.h"

namespace mla::launcher {

// What a kernel accepts beyond its op's table.
struct Spec {
  const OpBinding* op;
  const CacheFormat* format;  // of the op's cache; null for an op without one
  int32_t device_type;
  const ElementType* types[kMaxTensors];
  const CacheFormat* formats[kMaxTensors];  // of the cache that a tensor is, or whose rows it has
  Limits limits[kMaxDims];
  Limits scalar_limits[kMaxScalars];  // read for integers only
};

struct Buffer {
  void* data = nullptr;
  int64_t bytes = 0;
  bool given = false;
};

// Plan and workspace are aligned for every type that a payload keeps in them.
inline constexpr int64_t kBufferAlignment = 16;

constexpr int32_t max_problem_size() {
  int32_t size = 0;
  for (const OpBinding& op : kOps) size = op.size > size ? op.size : size;
  return size;
}

// The problem struct of one call. Functions that return bool return false with a Python exception
// set.
//
// @pre Arguments outlive the problem, which borrows their memory.
class Problem {
 public:
  explicit Problem(const Spec& spec);

  // Says whether the call has the tensor of bounds, for which requests are not those of the batch.
  //
  // @pre No tensor has been set.
  void set_bounds_given(bool given) { merged_dim_ = given ? -1 : spec_.op->requests; }

  // Sets the stream of the call; see Call.
  //
  // @pre No tensor has been set.
  bool use_stream(PyObject* stream) { return call_.use_stream(stream); }

  bool set_tensor(int index, PyObject* value);
  bool set_scalar(int index, PyObject* value);

  // Sets tensors, dimensions and scalars from a dict by their names. Any may be missing or None.
  // "device" is the device's ordinal where no tensor tells it.
  bool set_by_name(PyObject* arguments);

  // Reads a plan or a workspace. None leaves the buffer empty.
  bool read_buffer(const char* name, PyObject* value, bool written, Buffer* buffer);

  // Refuses what the kernel writes where it shares memory with another argument.
  bool check_memory() const { return memory_.check(dims_); }

  // Returns the struct as the payload reads it.
  const void* data();
  void* stream() const { return call_.stream(); }

 private:
  bool set_named(PyObject* name, PyObject* value);
  bool is_cache_scale(const TensorBinding& binding) const;
  bool set_none(const TensorBinding& binding);
  [[gnu::cold]] bool refuse_value(const TensorBinding& binding, Argument argument,
                                  PyObject* got) const;
  bool set_pair(const TensorBinding& binding, PyObject* pair);
  bool set_view(const TensorBinding& binding, Argument argument, PyObject* object, int64_t row,
                int32_t offset);
  int64_t row_extent(const TensorBinding& binding) const;
  void derive_rope(const TensorBinding& binding);
  bool set_dim(int dim, int64_t extent, Argument argument);
  int merged(int dim) const { return dim == merged_dim_ ? spec_.op->batch : dim; }
  bool is_bound(int dim) const { return (bound_dims_ >> dim & 1) != 0; }
  [[gnu::cold]] bool refuse_dim(int dim, int64_t extent, Argument argument) const;
  bool add_memory(const TensorBinding& binding, Argument argument, const View& view,
                  int32_t offset);
  bool allow_stride(const TensorBinding& binding, Argument argument, const View& view, int index);
  unsigned char* bytes() { return reinterpret_cast<unsigned char*>(words_); }
  int64_t& field_at(int32_t offset) { return words_[offset / sizeof(int64_t)]; }
  [[gnu::cold]] PyObject* shape_text(const TensorBinding& binding) const;

  const Spec& spec_;
  Call call_;
  Memory memory_;
  const ElementType* type_ = nullptr;    // the type of the tensor that is being set
  const CacheFormat* format_ = nullptr;  // and its format
  bool partial_ = false;
  int merged_dim_ = -1;          // a dimension that is the batch
  uint32_t bound_dims_ = 0;      // a bit for each dimension
  Argument dim_from_[kMaxDims];  // the argument that bound a dimension
  int64_t* const dims_;          // the dimensions, within words_
  int64_t words_[max_problem_size() / sizeof(int64_t)];
};

// Refuses a buffer of fewer bytes than the payload asks for.
bool check_size(const char* name, const Buffer& buffer, int64_t bytes);

}  // namespace mla::launcher
