#include "launcher/arguments/problem.h"

#include <cstring>

#include "launcher/arguments/scalar.h"

namespace mla::launcher {
namespace {

static_assert(sizeof(void*) == sizeof(int64_t));

// This memory stands for that of an optional tensor without elements, because null would say that
// the tensor is absent.
alignas(256) char empty_tensor[1];

constexpr int64_t kAnyExtent = -1;
constexpr char kWritable[] = "a writable tensor (arrays of JAX are read-only)";

PyObject* text(const char* words) { return PyUnicode_FromString(words); }

PyObject* integer_text(long long number) { return PyUnicode_FromFormat("%lld", number); }

void fill_contiguous(const dlpack::Tensor& tensor, int64_t* strides) {
  uint64_t stride = 1;  // unsigned, because it may wrap where another extent is 0
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(tensor.shape[i]);
  }
}

// Refuses an address that `alignment` does not divide.
//
// @pre alignment is a power of two.
bool check_alignment(Argument argument, const void* data, int64_t alignment) {
  const auto excess = reinterpret_cast<uintptr_t>(data) & static_cast<uintptr_t>(alignment - 1);
  if (excess == 0) return true;
  return refuse(MLA_ALIGNMENT, argument,
                PyUnicode_FromFormat("an address %d bytes past a multiple of %d",
                                     static_cast<int>(excess), static_cast<int>(alignment)),
                PyUnicode_FromFormat("a multiple of %d", static_cast<int>(alignment)));
}

bool check_writable(Argument argument, const View& view) {
  return !view.read_only ||
         refuse(MLA_UNSUPPORTED, argument, text("a read-only tensor"), text(kWritable));
}

}  // namespace

Problem::Problem(const Spec& spec)
    : spec_(spec), call_(spec.device_type), dims_(&field_at(spec.op->dims_offset)) {
  memset(words_, 0, static_cast<size_t>(spec.op->size));
}

const void* Problem::data() {
  const int32_t head[2] = {static_cast<int32_t>(spec_.op - kOps), call_.device()};
  memcpy(words_, head, sizeof head);
  return words_;
}

PyObject* Problem::shape_text(const TensorBinding& binding) const {
  const OpBinding& op = *spec_.op;
  const Ref names(PyList_New(0));
  for (int i = 0; names && i < binding.outer; ++i) {
    const Ref name(text(op.dims[merged(binding.dims[i])]));
    if (!name || PyList_Append(names.get(), name.get()) < 0) return nullptr;
  }
  if (names && binding.row != Row::none) {
    const Ref row(binding.row == Row::dim ? text(op.dims[binding.extent])
                                          : integer_text(row_extent(binding)));
    if (!row || PyList_Append(names.get(), row.get()) < 0) return nullptr;
  }
  const Ref comma(text(", "));
  const Ref joined(names && comma ? PyUnicode_Join(comma.get(), names.get()) : nullptr);
  if (!joined) return nullptr;
  return binding.row != Row::packed || type_->byte_row || format_->rope == 0
             ? PyUnicode_FromFormat("[%U]", joined.get())
             : PyUnicode_FromFormat("[%U], or a pair with %d and %d in the last place",
                                    joined.get(), format_->latent, format_->rope);
}

inline bool Problem::set_dim(int dim, int64_t extent, Argument argument) {
  if (is_bound(dim)) return dims_[dim] == extent || refuse_dim(dim, extent, argument);
  if (!spec_.limits[dim].contain(extent)) return refuse_dim(dim, extent, argument);
  dims_[dim] = extent;
  if (merged_dim_ >= 0 && dim == spec_.op->batch) dims_[merged_dim_] = extent;
  bound_dims_ |= 1u << dim;
  dim_from_[dim] = argument;
  return true;
}

bool Problem::refuse_dim(int dim, int64_t extent, Argument argument) const {
  const long long got = extent, bound = dims_[dim], planned = spec_.limits[dim].min;
  const char* name = spec_.op->dims[dim];
  if (!is_bound(dim) && spec_.limits[dim].of_plan) {
    return refuse(MLA_SHAPE, {"plan"}, PyUnicode_FromFormat("a plan of %s %lld", name, planned),
                  PyUnicode_FromFormat("a plan of %s %lld, as %s has", name, got, argument.name));
  }
  return refuse(MLA_SHAPE, argument, PyUnicode_FromFormat("%s = %lld", name, got),
                is_bound(dim) ? PyUnicode_FromFormat("%lld, as %s has", bound, dim_from_[dim].name)
                              : spec_.limits[dim].text());
}

bool Problem::allow_stride(const TensorBinding& binding, Argument argument, const View& view,
                           int index) {
  if (view.bytes == 0) return true;
  const long long stride = view.tensor.strides[index];
  const bool contiguous = index >= binding.outer || !binding.strided[index];
  if (stride == 0 && !contiguous && !binding.written) return true;
  const char* name =
      index < binding.outer ? spec_.op->dims[merged(binding.dims[index])] : "the last place";
  return refuse(MLA_STRIDE, argument, PyUnicode_FromFormat("stride %lld along %s", stride, name),
                text(contiguous    ? "stride 1"
                     : stride == 0 ? "elements that do not overlap"
                                   : "no negative stride"));
}

// Notes the memory of a view that has elements, whose strides are not negative.
bool Problem::add_memory(const TensorBinding& binding, Argument argument, const View& view,
                         int32_t offset) {
  const dlpack::Tensor& tensor = view.tensor;
  const int64_t row = tensor.ndim > binding.outer ? tensor.shape[binding.outer] : 1;
  int64_t reach = row, bytes;
  bool overflows = false;
  for (int i = 0; i < binding.outer && i < tensor.ndim; ++i) {
    int64_t step;
    overflows |= __builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &step);
    overflows |= __builtin_add_overflow(reach, step, &reach);
  }
  const auto begin = reinterpret_cast<uintptr_t>(view.data());
  uintptr_t end;
  overflows |= __builtin_mul_overflow(reach, type_->bytes, &bytes);
  overflows |= __builtin_add_overflow(begin, static_cast<uintptr_t>(bytes), &end);
  if (overflows) {
    return refuse(MLA_STRIDE, argument, text("strides past the end of memory"),
                  text("strides within the tensor's memory"));
  }
  memory_.add(begin, end, binding.written,
              {argument.name, argument.part, &binding, &field_at(offset), row * type_->bytes,
               type_->bytes});
  return !binding.written || are_apart(binding.outer, tensor.shape, tensor.strides, row) ||
         refuse(MLA_STRIDE, argument, text("strides that reach an element twice"),
                text("elements that do not overlap"));
}

bool Problem::set_view(const TensorBinding& binding, Argument argument, PyObject* object,
                       int64_t row, int32_t offset) {
  View view;
  if (!call_.read(object, argument, &view)) {
    const bool number = is_instance(object, PyFloat_Type) || PyLong_Check(object);
    return number && take_exception() && refuse_value(binding, argument, type_text(object));
  }
  dlpack::Tensor& tensor = view.tensor;
  if (!type_->matches(tensor.dtype)) {
    return refuse(MLA_DTYPE, argument, dtype_text(tensor.dtype), text(type_->accepts));
  }
  if (view.is_torch && dlpack::is_float(tensor.dtype) && !call_.check_gradient(object, argument)) {
    return false;
  }
  const int outer = binding.outer;
  const bool single = outer == 0 && tensor.ndim == 0;  // stands for a row of one element
  if ((tensor.ndim != outer + (binding.row != Row::none) && !single) ||
      (row != kAnyExtent && tensor.ndim > outer && tensor.shape[outer] != row)) {
    return refuse(MLA_SHAPE, argument, view.shape_text(), shape_text(binding));
  }
  int64_t own_strides[kMaxOuter + 1];
  if (tensor.strides == nullptr) {
    fill_contiguous(tensor, own_strides);
    tensor.strides = own_strides;
  }
  int64_t* field = &field_at(offset);
  for (int i = 0; i < outer; ++i) {
    const int64_t extent = tensor.shape[i], stride = tensor.strides[i];
    if (!set_dim(merged(binding.dims[i]), extent, argument)) return false;
    const bool plain = extent == 1 || stride == 1 || (stride > 0 && binding.strided[i]);
    if (!plain && !allow_stride(binding, argument, view, i)) return false;
    if (binding.strided[i]) *++field = stride;
  }
  if (tensor.ndim > outer) {
    const int64_t extent = tensor.shape[outer];
    if (binding.row == Row::dim && !set_dim(binding.extent, extent, argument)) return false;
    const bool plain = extent == 1 || tensor.strides[outer] == 1;
    if (!plain && !allow_stride(binding, argument, view, outer)) return false;
  }
  if (binding.written && !check_writable(argument, view)) return false;
  char* data = view.data();
  if (data == nullptr && binding.optional) data = empty_tensor;
  field_at(offset) = reinterpret_cast<int64_t>(data);
  return check_alignment(argument, data, type_->bytes) &&
         (view.bytes == 0 || add_memory(binding, argument, view, offset));
}

// Returns the extent that a row must have.
int64_t Problem::row_extent(const TensorBinding& binding) const {
  switch (binding.row) {
    case Row::none:
    case Row::dim:
      return kAnyExtent;
    case Row::fixed:
      return binding.extent;
    case Row::packed:
      return type_->byte_row ? format_->token_bytes : format_->d_qk;
    case Row::latent:
      return format_->latent;
    case Row::rope:
      return format_->rope;
    case Row::value:
      return format_->d_v;
  }
  return kAnyExtent;
}

// Points rope into the packed row that latent starts, with the same strides.
void Problem::derive_rope(const TensorBinding& binding) {
  const int64_t* latent = &field_at(binding.offset);
  int64_t* rope = &field_at(binding.rope_offset);
  rope[0] = latent[0] == 0 ? 0 : latent[0] + format_->latent * type_->bytes;
  for (int i = 1; i <= binding.outer; ++i) rope[i] = latent[i];
}

bool Problem::set_pair(const TensorBinding& binding, PyObject* pair) {
  if (PyTuple_Size(pair) != 2) {
    return refuse(MLA_SHAPE, {binding.name},
                  PyUnicode_FromFormat("%zd tensors", PyTuple_Size(pair)), shape_text(binding));
  }
  const CacheFormat& format = *format_;
  return set_view(binding, {binding.name, 0}, PyTuple_GetItem(pair, 0), format.latent,
                  binding.offset) &&
         set_view(binding, {binding.name, 1}, PyTuple_GetItem(pair, 1), format.rope,
                  binding.rope_offset);
}

// Whether a tensor is the scale of a cache whose format has one for all of its rows.
bool Problem::is_cache_scale(const TensorBinding& binding) const {
  return spec_.format != nullptr && spec_.format->scale_place == ScalePlace::tensor &&
         strcmp(binding.name, "scale") == 0;
}

bool Problem::set_none(const TensorBinding& binding) {
  if (partial_ || (binding.row == Row::rope && format_->rope == 0)) return true;
  if (is_cache_scale(binding)) {
    return refuse(MLA_DTYPE, {binding.name}, text("None"),
                  PyUnicode_FromFormat("a float32 tensor of one element, because kv_cache is %s",
                                       spec_.format->name));
  }
  return binding.optional || refuse_value(binding, {binding.name}, text("None"));
}

// Refuses what is no tensor, and says which tensor is meant.
bool Problem::refuse_value(const TensorBinding& binding, Argument argument, PyObject* got) const {
  const Ref shape(shape_text(binding));
  return refuse(
      MLA_DTYPE, argument, got,
      shape ? PyUnicode_FromFormat("a tensor of %s, %U", type_->accepts, shape.get()) : nullptr);
}

bool Problem::set_tensor(int index, PyObject* value) {
  const TensorBinding& binding = spec_.op->tensors[index];
  type_ = spec_.types[index];
  format_ = spec_.formats[index];
  if (value == Py_None) return set_none(binding);
  const bool two_views = binding.row == Row::packed && !type_->byte_row;
  if (two_views && PyTuple_Check(value)) return set_pair(binding, value);
  if (!set_view(binding, {binding.name}, value, row_extent(binding), binding.offset)) return false;
  if (two_views) derive_rope(binding);
  return true;
}

bool Problem::set_scalar(int index, PyObject* value) {
  return read_scalar(spec_.op->scalars[index], spec_.scalar_limits[index], value, bytes());
}

bool Problem::set_named(PyObject* name, PyObject* value) {
  const OpBinding& op = *spec_.op;
  const auto is = [name](const char* other) {
    return PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, other) == 0;
  };
  const bool absent = value == Py_None;
  for (int i = 0; i < op.num_tensors; ++i) {
    if (is(op.tensors[i].name)) return set_tensor(i, value);
  }
  for (int i = 0; i < op.num_scalars; ++i) {
    if (is(op.scalars[i].name)) return absent || set_scalar(i, value);
  }
  int64_t number;
  for (int i = 0; i < op.num_dims; ++i) {
    const char* dim = op.dims[i];
    if (!is(dim)) continue;
    return absent || (read_count(dim, value, INT64_MAX, &number) && set_dim(i, number, {dim}));
  }
  if (is("device")) {
    return absent || (read_count("device", value, INT32_MAX, &number) &&
                      call_.use_device(static_cast<int32_t>(number)));
  }
  PyErr_Format(PyExc_TypeError, "%s has no argument or dimension %R", op.name, name);
  return false;
}

bool Problem::set_by_name(PyObject* arguments) {
  partial_ = true;
  if (spec_.op->bounds >= 0) {
    const OpBinding& op = *spec_.op;
    PyObject* bounds = PyDict_GetItemString(arguments, op.tensors[op.bounds].name);
    set_bounds_given((bounds != nullptr && bounds != Py_None) ||
                     PyDict_GetItemString(arguments, op.dims[op.requests]) != nullptr);
  }
  for (int i = 0; i < spec_.op->num_scalars; ++i) preset_scalar(spec_.op->scalars[i], bytes());
  PyObject *name, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(arguments, &position, &name, &value)) {
    if (!set_named(name, value)) return false;
  }
  return true;
}

bool Problem::read_buffer(const char* name, PyObject* value, bool written, Buffer* buffer) {
  if (value == Py_None) return true;
  View view;
  if (!call_.read(value, {name}, &view)) return false;
  if (!view.is_contiguous()) {
    return refuse(MLA_WORKSPACE, {name}, text("a tensor with gaps"), text("a contiguous tensor"));
  }
  if (written && !check_writable({name}, view)) return false;
  *buffer = {view.data(), view.bytes, true};
  if (view.bytes > 0) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer->data);
    const uintptr_t end = begin + static_cast<uintptr_t>(view.bytes);
    memory_.add(begin, end, written, {name, -1, nullptr, nullptr, view.bytes, 1});
  }
  return check_alignment({name}, buffer->data, kBufferAlignment);
}

bool check_size(const char* name, const Buffer& buffer, int64_t bytes) {
  const long long got = buffer.bytes, least = bytes;
  return buffer.bytes >= bytes ||
         refuse(MLA_WORKSPACE, {name}, PyUnicode_FromFormat("%lld bytes", got),
                PyUnicode_FromFormat("at least %lld bytes", least));
}

}  // namespace mla::launcher
