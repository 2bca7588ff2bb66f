#include "launcher/tensors/tensor.h"

#include "launcher/python/number.h"
#include "launcher/tensors/exchange_api.h"

namespace mla::launcher {
namespace {

constexpr char kStreamText[] =
    "the address of a CUDA stream, such as torch.cuda.current_stream().cuda_stream, or None";

bool is_cuda(int32_t device_type) { return device_type == dlpack::kCuda; }

bool is_on(int32_t device_type, dlpack::Device device) {
  return is_cuda(device_type) ? device.type == dlpack::kCuda || device.type == dlpack::kCudaManaged
                              : device.type == dlpack::kCpu || device.type == dlpack::kCudaHost;
}

PyObject* device_text(int32_t type, int32_t id) {
  if (is_on(dlpack::kCpu, {type, id})) return PyUnicode_FromString("cpu");
  if (is_on(dlpack::kCuda, {type, id})) return PyUnicode_FromFormat("cuda:%d", int{id});
  return PyUnicode_FromFormat("a device of DLPack type %d", int{type});
}

PyObject* device_type_text(int32_t type) {
  return PyUnicode_FromString(is_cuda(type) ? "cuda" : "cpu");
}

// Reads __dlpack_device__. Returns false with an exception set where that fails.
bool ask_device(PyObject* object, dlpack::Device* device) {
  const Ref answer(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  if (!answer) return false;
  if (!PyTuple_Check(answer.get())) {
    PyErr_SetString(PyExc_TypeError, "__dlpack_device__ returns no tuple");
    return false;
  }
  int type, id;
  // The first element may be an enum that is no int.
  const Ref number(PyTuple_Size(answer.get()) == 2 ? PyNumber_Long(PyTuple_GetItem(answer.get(), 0))
                                                   : nullptr);
  if (!number) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "__dlpack_device__ returns no pair");
    return false;
  }
  type = static_cast<int>(PyLong_AsLong(number.get()));
  if (PyErr_Occurred()) return false;
  id = static_cast<int>(PyLong_AsLong(PyTuple_GetItem(answer.get(), 1)));
  if (PyErr_Occurred()) return false;
  *device = {type, id};
  return true;
}

// Returns the name of the object's type with the first line of an exception, which says why; torch
// appends its call stack. Where the exception has no text, its type says why.
PyObject* reason_text(PyObject* object, const Ref& exception) {
  const Ref name(type_text(object));
  Ref reason(name ? PyObject_Str(exception.get()) : nullptr);
  if (name && !reason && take_exception()) reason = Ref(type_text(exception.get()));
  if (!reason) return nullptr;
  const Py_ssize_t length = PyUnicode_GetLength(reason.get());
  const Py_ssize_t line = PyUnicode_FindChar(reason.get(), '\n', 0, length, 1);
  const Ref first(line < 0 ? reason.release() : PyUnicode_Substring(reason.get(), 0, line));
  return first ? PyUnicode_FromFormat("%U (%U)", name.get(), first.get()) : nullptr;
}

// Refuses a tensor that could not be exported, with the pending exception as the cause.
bool refuse_export(PyObject* object, Argument argument, int32_t device_type) {
  Ref cause = take_exception();
  if (!cause) return false;
  dlpack::Device device;
  if (!ask_device(object, &device)) {
    const Ref unknown = take_exception();
    return unknown && refuse(MLA_DEVICE, argument, reason_text(object, unknown),
                             device_type_text(device_type), std::move(cause));
  }
  if (!is_on(device_type, device)) {
    return refuse(MLA_DEVICE, argument, device_text(device.type, device.id),
                  device_type_text(device_type), std::move(cause));
  }
  PyObject* got = reason_text(object, cause);  // before the cause moves into the call
  return refuse(MLA_DTYPE, argument, got, PyUnicode_FromString("a tensor that DLPack can export"),
                std::move(cause));
}

Ref export_capsule(PyObject* object, bool with_stream, void* stream) {
  const Ref method(PyObject_GetAttrString(object, "__dlpack__"));
  const Ref none(PyTuple_New(0)), keywords(PyDict_New());
  const Ref version(Py_BuildValue("(ii)", 1, 0));
  if (!method || !none || !keywords || !version) return Ref();
  if (with_stream) {
    // DLPack has no 0 for CUDA: 1 is the legacy default stream.
    const Ref handle(stream == nullptr ? PyLong_FromLong(1) : PyLong_FromVoidPtr(stream));
    if (!handle || PyDict_SetItemString(keywords.get(), "stream", handle.get()) < 0) return Ref();
  }
  if (PyDict_SetItemString(keywords.get(), "max_version", version.get()) < 0) return Ref();
  Ref capsule(PyObject_Call(method.get(), none.get(), keywords.get()));
  if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError)) return capsule;
  PyErr_Clear();  // a producer from before DLPack 1.0 does not know max_version
  if (PyDict_DelItemString(keywords.get(), "max_version") < 0) return Ref();
  return Ref(PyObject_Call(method.get(), none.get(), keywords.get()));
}

bool view_capsule(PyObject* capsule, View* view) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const auto* managed = static_cast<const dlpack::ManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major != dlpack::kMajor) return false;
    view->tensor = managed->tensor;
    view->read_only = (managed->flags & dlpack::kReadOnly) != 0;
    return true;
  }
  if (!PyCapsule_IsValid(capsule, "dltensor")) return false;
  const auto* managed =
      static_cast<const dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  view->tensor = managed->tensor;
  view->read_only = false;
  return true;
}

// Returns the bytes of all elements, or -1 where the tensor makes no sense or has more bytes than
// an int64 counts.
int64_t count_bytes(const dlpack::Tensor& tensor) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) return -1;
  int64_t bytes = (int64_t{tensor.dtype.bits} * tensor.dtype.lanes + 7) / 8;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0 || __builtin_mul_overflow(bytes, tensor.shape[i], &bytes)) return -1;
  }
  return bytes;
}

}  // namespace

PyObject* View::shape_text() const {
  const int ndim = tensor.shape == nullptr || tensor.ndim < 0 ? 0 : tensor.ndim;
  const Ref extents(PyList_New(ndim));
  if (!extents) return nullptr;
  for (int i = 0; i < ndim; ++i) {
    PyObject* extent = PyLong_FromLongLong(tensor.shape[i]);
    if (extent == nullptr || PyList_SetItem(extents.get(), i, extent) < 0) return nullptr;
  }
  return PyUnicode_FromFormat("shape %R", extents.get());
}

bool View::is_contiguous() const {
  if (bytes == 0 || tensor.strides == nullptr) return true;
  int64_t stride = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

Call::~Call() {
  for (int i = 0; i < num_capsules_; ++i) Py_DecRef(capsules_[i]);
}

bool Call::use_stream(PyObject* stream) {
  if (stream == Py_None) return true;
  if (!PyLong_Check(stream)) {
    return refuse(MLA_DTYPE, {"stream"}, type_text(stream), PyUnicode_FromString(kStreamText));
  }
  // An unsigned number, because an address that is negative is none.
  const unsigned long long handle = PyLong_AsUnsignedLongLong(stream);
  if (PyErr_Occurred()) {
    Ref cause = take_exception();
    return cause && refuse(MLA_RANGE, {"stream"}, number_text(stream),
                           PyUnicode_FromString(kStreamText), std::move(cause));
  }
  if (!is_cuda(device_type_)) return true;
  stream_ = reinterpret_cast<void*>(static_cast<uintptr_t>(handle));
  has_stream_ = true;
  return true;
}

bool Call::use_device(int32_t ordinal) {
  device_ = ordinal;
  device_from_ = {"device"};
  return true;
}

bool Call::settle_device(Argument argument, dlpack::Device device) {
  if (!is_on(device_type_, device)) {
    return refuse(MLA_DEVICE, argument, device_text(device.type, device.id),
                  device_type_text(device_type_));
  }
  if (!is_cuda(device_type_)) return true;
  if (device_ < 0) {
    device_ = device.id;
    device_from_ = argument;
  }
  if (device.id == device_) return true;
  return refuse(MLA_DEVICE, argument, device_text(device.type, device.id),
                PyUnicode_FromFormat("cuda:%d, as %s", int{device_}, device_from_.name));
}

bool Call::read_capsule(PyObject* object, bool is_torch, Argument argument, View* view) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (!PyObject_HasAttrString(type, "__dlpack__")) {
    return refuse(MLA_DTYPE, argument, type_text(object),
                  PyUnicode_FromString("a tensor with __dlpack__"));
  }
  const bool with_stream = is_cuda(device_type_);
  if (with_stream && !has_stream_) {
    const Ref name(type_text(object));
    return name && refuse(MLA_UNSUPPORTED, {"stream"}, PyUnicode_FromString("None"),
                          PyUnicode_FromFormat(
                              "an integer handle, because %s (%U) does not tell its current stream",
                              argument.name, name.get()));
  }
  const Ref plain = is_torch ? detached(object) : Ref();
  if (is_torch && !plain) return refuse_export(object, argument, device_type_);
  Ref capsule = export_capsule(is_torch ? plain.get() : object, with_stream, stream_);
  if (!capsule) return refuse_export(object, argument, device_type_);
  if (!view_capsule(capsule.get(), view)) {
    const Ref name(type_text(object));
    return name && refuse(MLA_DTYPE, argument,
                          PyUnicode_FromFormat("%U with an unknown __dlpack__", name.get()),
                          PyUnicode_FromString("a tensor of DLPack 0 or 1"));
  }
  capsules_[num_capsules_++] = capsule.release();
  return check_device(argument, view->tensor.device);
}

bool Call::read(PyObject* object, Argument argument, View* view) {
  const auto [type, api, is_torch] = exchange_of(Py_TYPE(object));
  view->is_torch = is_torch;
  if (api == nullptr) {
    if (!read_capsule(object, is_torch, argument, view)) return false;
  } else {
    if (api->export_tensor(object, &view->tensor) != 0) {
      return refuse_export(object, argument, device_type_);
    }
    view->read_only = false;
    if (!check_device(argument, view->tensor.device)) return false;
    if (is_cuda(device_type_) && !has_stream_) {
      if (api->current_work_stream(dlpack::kCuda, device_, &stream_) != 0) return false;
      has_stream_ = true;
    }
  }
  view->bytes = count_bytes(view->tensor);
  if (view->bytes < 0) {
    return refuse(MLA_SHAPE, argument, view->shape_text(),
                  PyUnicode_FromString("at most 2^63 - 1 bytes"));
  }
  if (view->bytes > 0 && view->tensor.data == nullptr) {
    return refuse(MLA_DEVICE, argument, PyUnicode_FromString("a tensor without memory"),
                  device_type_text(device_type_));
  }
  return !is_torch || check_no_negative_bit(object, argument);
}

}  // namespace mla::launcher
