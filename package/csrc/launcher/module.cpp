// The extension module mla_kernels._launcher.
#include "launcher/python/errors.h"
#include "launcher/python/python.h"
#include "launcher/types/kernel.h"
#include "launcher/types/payload.h"
#include "mla/bindings.h"

namespace mla::launcher {
namespace {

static_assert([] {
  for (const OpBinding& op : kOps) {
    if (op.num_tensors > kMaxTensors || op.num_dims > kMaxDims || op.num_scalars > kMaxScalars) {
      return false;
    }
  }
  return true;
}());

PyObject* register_errors(PyObject*, PyObject* classes) {
  if (!set_errors(classes)) return nullptr;
  return none();
}

PyObject* argument_names(const OpBinding& op) {
  Ref names(PyTuple_New(op.num_tensors + op.num_scalars));
  for (int i = 0; names && i < op.num_tensors + op.num_scalars; ++i) {
    PyObject* name = PyUnicode_FromString(i < op.num_tensors ? op.tensors[i].name
                                                             : op.scalars[i - op.num_tensors].name);
    if (name == nullptr || PyTuple_SetItem(names.get(), i, name) < 0) return nullptr;
  }
  return names.release();
}

PyObject* list_ops() {
  Ref ops(PyDict_New());
  for (const OpBinding& op : kOps) {
    if (!ops) return nullptr;
    const Ref names(argument_names(op));
    if (!names || PyDict_SetItemString(ops.get(), op.name, names.get()) < 0) return nullptr;
  }
  return ops.release();
}

bool add(PyObject* module, const char* name, PyObject* object) {
  const Ref owned(object);
  return owned && PyModule_AddObjectRef(module, name, object) == 0;
}

// Types, classes of errors and what was found out about torch are kept once for the process, so one
// interpreter has the module. The interpreters that ask here share the GIL: Python itself refuses
// the module to others.
bool claim_process() {
  static int64_t owner = -1;
  const int64_t interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());
  if (owner == -1) owner = interpreter;
  if (owner == interpreter) return true;
  PyErr_SetString(
      PyExc_ImportError,
      "mla_kernels is imported by another interpreter of this process, and works in one only; "
      "import it in that one, or in a process of its own");
  return false;
}

int fill(PyObject* module) {
  const bool filled =
      claim_process() && add(module, "ABI_HASH", PyUnicode_FromString(MLA_ABI_HASH)) &&
      add(module, "VERSION", PyUnicode_FromString(MLA_VERSION)) && add(module, "OPS", list_ops()) &&
      add(module, "Payload", reinterpret_cast<PyObject*>(make_payload_type())) &&
      add(module, "Kernel", reinterpret_cast<PyObject*>(make_kernel_type()));
  return filled ? 0 : -1;
}

PyMethodDef methods[] = {
    {"set_errors", register_errors, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

// Two phases, because a module of one phase is copied into each interpreter without being asked.
PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(fill)},
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_launcher", nullptr, 0, methods, slots, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace mla::launcher

PyMODINIT_FUNC PyInit__launcher() { return PyModuleDef_Init(&mla::launcher::definition); }
