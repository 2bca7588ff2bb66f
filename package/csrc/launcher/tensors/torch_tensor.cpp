#include "launcher/tensors/torch_tensor.h"

namespace mla::launcher {
namespace {

// The C functions behind Tensor.is_neg(), Tensor.requires_grad and torch.is_grad_enabled(). Every
// launch asks them of every tensor, and calling them through Python costs three times as much.
struct TorchFunctions {
  PyCFunction is_neg;
  PyObject* requires_grad;  // the descriptor, which `get` reads
  descrgetfunc get;
  PyCFunction is_grad_enabled;
};

TorchFunctions torch;

Ref attribute(PyObject* object, const char* name) {
  return Ref(object != nullptr ? PyObject_GetAttrString(object, name) : nullptr);
}

// Returns a module that is imported already, or null.
Ref imported(const char* name) {
  const Ref module_name(PyUnicode_FromString(name));
  return Ref(module_name ? PyImport_GetModule(module_name.get()) : nullptr);
}

PyCFunction c_function(const Ref& function) {
  const bool plain = function && is_instance(function.get(), PyCFunction_Type) &&
                     PyCFunction_GetFlags(function.get()) == METH_NOARGS;
  return plain ? PyCFunction_GetFunction(function.get()) : nullptr;
}

bool find_functions(PyObject* tensor) {
  if (torch.get != nullptr) return true;
  const Ref module = imported("torch");
  const Ref base = attribute(module.get(), "Tensor");
  const Ref method = attribute(base.get(), "is_neg");
  const Ref bound(method ? PyObject_CallMethod(method.get(), "__get__", "O", tensor) : nullptr);
  torch.is_neg = c_function(bound);
  torch.is_grad_enabled = c_function(attribute(module.get(), "is_grad_enabled"));
  Ref descriptor = attribute(base.get(), "requires_grad");
  if (!descriptor) return false;
  auto* get =
      reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(descriptor.get()), Py_tp_descr_get));
  if (torch.is_neg == nullptr || torch.is_grad_enabled == nullptr || get == nullptr) {
    PyErr_SetString(PyExc_ImportError,
                    "this torch has no is_neg, requires_grad or is_grad_enabled");
    return false;
  }
  torch.requires_grad = descriptor.release();
  torch.get = get;
  return true;
}

// Reads a bool. Returns false with an exception set where asking failed.
bool read_flag(PyObject* answer, bool* flag) {
  *flag = answer == Py_True;
  Py_DecRef(answer);
  return answer != nullptr;
}

// A tensor whose negative bit was seen unset. The weak reference tells whether the object at the
// address is still that tensor. An assignment to its `data` may set the bit later; that goes
// unnoticed, because nothing that is quicker than is_neg() tells it.
struct Seen {
  PyObject* object;
  PyObject* reference;
};

constexpr uintptr_t kMaxSeen = 1024;
Seen seen[kMaxSeen];

Seen& place_of(PyObject* object) {
  return seen[reinterpret_cast<uintptr_t>(object) / 16 % kMaxSeen];
}

// is_neg() takes longer than all other checks of a tensor, because it lets go of the interpreter.
// Layers bring the same caches again, so those are asked once.
bool was_seen(PyObject* object) {
  const Seen& place = place_of(object);
  return place.object == object && PyWeakref_GetObject(place.reference) == object;
}

bool remember(PyObject* object) {
  PyObject* reference = PyWeakref_NewRef(object, nullptr);
  if (reference == nullptr) return false;
  Seen& place = place_of(object);
  place.object = object;
  const Ref replaced(std::exchange(place.reference, reference));
  return true;
}

bool refuse_tensor(Argument argument, const char* got, const char* accepts) {
  return refuse(MLA_UNSUPPORTED, argument, PyUnicode_FromString(got),
                PyUnicode_FromString(accepts));
}

}  // namespace

TorchType torch_type(PyTypeObject* type) {
  const Ref module = imported("torch"), modules = imported("torch.nn");
  const Ref tensor = attribute(module.get(), "Tensor");
  const Ref parameter = attribute(modules.get(), "Parameter");
  PyErr_Clear();
  auto* base = reinterpret_cast<PyTypeObject*>(tensor.get());
  if (!tensor || PyType_Check(tensor.get()) == 0 || PyType_IsSubtype(type, base) == 0) {
    return TorchType::none;
  }
  const bool own = type == base || reinterpret_cast<PyObject*>(type) == parameter.get();
  return own ? TorchType::tensor : TorchType::subclass;
}

bool check_no_negative_bit(PyObject* object, Argument argument) {
  if (was_seen(object)) return true;
  bool flag;
  if (!find_functions(object) || !read_flag(torch.is_neg(object, nullptr), &flag)) return false;
  if (!flag) return remember(object);
  return refuse_tensor(argument, "a tensor with its negative bit set",
                       "a tensor without it; call resolve_neg() on it first");
}

bool check_no_gradient(PyObject* object, Argument argument, GradMode* mode) {
  bool flag;
  if (*mode == GradMode::unknown) {
    if (!read_flag(torch.is_grad_enabled(nullptr, nullptr), &flag)) return false;
    *mode = flag ? GradMode::on : GradMode::off;
  }
  if (*mode == GradMode::off) return true;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (!read_flag(torch.get(torch.requires_grad, object, type), &flag)) return false;
  return !flag || refuse_tensor(argument, "a tensor that requires a gradient",
                                "a tensor that requires none, because the kernels have no "
                                "backward pass; detach() it, or call under torch.no_grad()");
}

Ref detached(PyObject* object) { return Ref(PyObject_CallMethod(object, "detach", nullptr)); }

}  // namespace mla::launcher
