#include "launcher/types/spec.h"

#include <cstring>

#include "launcher/python/mapping.h"
#include "mla/formats.h"

namespace mla::launcher {
namespace {

// What the trait extra_kv_dtype says of a second cache that has the format of the first one.
constexpr const char* kSameFormat = "same";

// A width that is left out is the default one.
bool read_width(PyObject* traits, const char* name, int* width) {
  if (PyMapping_HasKeyString(traits, name) == 0) return true;
  const Ref value(PyMapping_GetItemString(traits, name));
  const long number = value ? PyLong_AsLong(value.get()) : -1;
  if (number == -1 && PyErr_Occurred()) return false;
  *width = static_cast<int>(number);
  return true;
}

// Returns the format of that name with the widths of the traits; null with an exception set, if
// there is none.
const CacheFormat* find_format(PyObject* traits, const char* name) {
  int d_qk = kHeadDim, d_v = kLatent;
  if (!read_width(traits, "d_qk", &d_qk) || !read_width(traits, "d_v", &d_v)) return nullptr;
  for (const CacheFormat* format : kEveryCacheFormat) {
    if (strcmp(format->name, name) == 0 && format->d_qk == d_qk && format->d_v == d_v) {
      return format;
    }
  }
  PyErr_Format(PyExc_ValueError, "no cache has kv_dtype '%s', d_qk %d and d_v %d", name, d_qk, d_v);
  return nullptr;
}

bool find_cache_format(PyObject* traits, Spec* spec) {
  spec->format = nullptr;
  if (PyMapping_HasKeyString(traits, "kv_dtype") == 0) return true;
  const Ref value(PyMapping_GetItemString(traits, "kv_dtype"));
  const char* name = value ? PyUnicode_AsUTF8AndSize(value.get(), nullptr) : nullptr;
  if (name != nullptr) spec->format = find_format(traits, name);
  return spec->format != nullptr;
}

// Whether a type is a trait that names the format of a cache.
bool is_format_trait(const char* name) {
  return strcmp(name, "kv_dtype") == 0 || strcmp(name, "extra_kv_dtype") == 0;
}

bool find_type(PyObject* traits, Spec* spec, int i) {
  const char* name = spec->op->tensors[i].dtype;
  spec->formats[i] = spec->format;
  spec->types[i] = element_type(name);
  if (spec->types[i] != nullptr) return true;
  const Ref value(PyMapping_GetItemString(traits, name));
  const char* dtype = value ? PyUnicode_AsUTF8AndSize(value.get(), nullptr) : nullptr;
  if (dtype == nullptr) return false;
  if (is_format_trait(name)) {
    if (strcmp(dtype, kSameFormat) != 0) spec->formats[i] = find_format(traits, dtype);
    if (spec->formats[i] == nullptr) return false;
    spec->types[i] = cache_type(*spec->formats[i]);
    return true;
  }
  spec->types[i] = element_type(dtype);
  if (spec->types[i] != nullptr) return true;
  PyErr_Format(PyExc_ValueError, "%s has the unknown dtype '%s'", name, dtype);
  return false;
}

bool find_types(PyObject* traits, Spec* spec) {
  for (int i = 0; i < spec->op->num_tensors; ++i) {
    if (!find_type(traits, spec, i)) return false;
  }
  return true;
}

Limits* find_limits(Spec* spec, const char* name) {
  const OpBinding& op = *spec->op;
  for (int i = 0; i < op.num_dims; ++i) {
    if (strcmp(op.dims[i], name) == 0) return &spec->limits[i];
  }
  for (int i = 0; i < op.num_scalars; ++i) {
    const ScalarBinding& scalar = op.scalars[i];
    if (scalar.kind == Kind::int64 && strcmp(scalar.name, name) == 0) {
      return &spec->scalar_limits[i];
    }
  }
  return nullptr;
}

bool read_limit(PyObject* name, PyObject* value, Spec* spec) {
  long long min, max, multiple_of;
  int of_plan = 0;
  const char* dim = PyUnicode_AsUTF8AndSize(name, nullptr);
  if (dim == nullptr ||
      !PyArg_ParseTuple(value, "LLL|p:limits", &min, &max, &multiple_of, &of_plan)) {
    return false;
  }
  Limits* limits = find_limits(spec, dim);
  if (limits == nullptr) {
    PyErr_Format(PyExc_ValueError, "%s has no dimension or integer '%s'", spec->op->name, dim);
    return false;
  }
  if (min < 0 || max < min || multiple_of < 1) {
    PyErr_Format(PyExc_ValueError, "the limits of %s are no range: %R", dim, value);
    return false;
  }
  *limits = {min, max, multiple_of, of_plan != 0};
  return true;
}

bool read_limits(PyObject* limits, Spec* spec) {
  for (Limits& unlimited : spec->limits) unlimited = Limits();
  for (Limits& unlimited : spec->scalar_limits) unlimited = Limits();
  const Ref copy = copy_arguments(limits);
  PyObject *name, *value;
  Py_ssize_t position = 0;
  while (copy && PyDict_Next(copy.get(), &position, &name, &value)) {
    if (!read_limit(name, value, spec)) return false;
  }
  return static_cast<bool>(copy);
}

bool find_device(const char* device, Spec* spec) {
  const bool is_cuda = strcmp(device, "cuda") == 0;
  spec->device_type = is_cuda ? dlpack::kCuda : dlpack::kCpu;
  if (is_cuda || strcmp(device, "cpu") == 0) return true;
  PyErr_Format(PyExc_ValueError, "device is 'cpu' or 'cuda', not '%s'", device);
  return false;
}

}  // namespace

bool read_spec(PyObject* traits, PyObject* limits, const char* device, Spec* spec) {
  return find_cache_format(traits, spec) && find_types(traits, spec) && read_limits(limits, spec) &&
         find_device(device, spec);
}

}  // namespace mla::launcher
