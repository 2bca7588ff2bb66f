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

PyMethodDef methods[] = {
    {"set_errors", register_errors, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_launcher", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace mla::launcher

PyMODINIT_FUNC PyInit__launcher() {
  using namespace mla::launcher;
  Ref module(PyModule_Create(&definition));
  if (!module || !add(module.get(), "ABI_HASH", PyUnicode_FromString(MLA_ABI_HASH)) ||
      !add(module.get(), "OPS", list_ops()) ||
      !add(module.get(), "Payload", reinterpret_cast<PyObject*>(make_payload_type())) ||
      !add(module.get(), "Kernel", reinterpret_cast<PyObject*>(make_kernel_type()))) {
    return nullptr;
  }
  return module.release();
}
