#include "launcher/types/payload.h"

#include <dlfcn.h>
#include <structmember.h>

#include <cstddef>
#include <cstring>
#include <iterator>

#include "launcher/python/errors.h"
#include "launcher/types/kernel.h"
#include "mla/bindings.h"

namespace mla::launcher {
namespace {

template <class Function>
bool resolve(void* library, PyObject* path, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr ||
         refuse_payload(PyUnicode_FromFormat("%U has no function %s", path, name));
}

bool check_hash(void* library, PyObject* path, Functions* functions) {
  if (!resolve(library, path, "mla_abi_hash", &functions->abi_hash) ||
      !resolve(library, path, "mla_version", &functions->version)) {
    return false;
  }
  const char* hash = functions->abi_hash();
  return strcmp(hash, MLA_ABI_HASH) == 0 ||
         refuse_payload(PyUnicode_FromFormat(
             "%U is version %s with ABI %s; mla-kernels is version %s with ABI %s: install the "
             "same version of both",
             path, functions->version(), hash, MLA_VERSION, MLA_ABI_HASH));
}

bool resolve_all(void* library, PyObject* path, Functions* functions) {
  return resolve(library, path, "mla_registry", &functions->registry) &&
         resolve(library, path, "mla_can_run", &functions->can_run) &&
         resolve(library, path, "mla_plan_size", &functions->plan_size) &&
         resolve(library, path, "mla_plan", &functions->plan) &&
         resolve(library, path, "mla_workspace_size", &functions->workspace_size) &&
         resolve(library, path, "mla_prepare", &functions->prepare) &&
         resolve(library, path, "mla_launch", &functions->launch) &&
         resolve(library, path, "mla_last_error", &functions->last_error);
}

PyObject* read_names(PyObject* path, const Functions& functions) {
  int64_t count = 0;
  const mla_variant* variants = functions.registry(&count);
  Ref names(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (Py_ssize_t i = 0; names && i < count; ++i) {
    if (variants[i].op < 0 || static_cast<size_t>(variants[i].op) >= std::size(kOps)) {
      refuse_payload(PyUnicode_FromFormat("%U gives %s the unknown op %d", path, variants[i].name,
                                          static_cast<int>(variants[i].op)));
      return nullptr;
    }
    PyObject* name = PyUnicode_FromString(variants[i].name);
    if (name == nullptr || PyTuple_SetItem(names.get(), i, name) < 0) return nullptr;
  }
  return names.release();
}

// Loads the library for good, because its threads may outlive every Payload.
bool load(Payload* self, PyObject* encoded_path) {
  void* library = dlopen(PyBytes_AsString(encoded_path), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return refuse_payload(PyUnicode_FromFormat("%U cannot be loaded: %s", self->path, dlerror()));
  }
  if (!check_hash(library, self->path, &self->functions) ||
      !resolve_all(library, self->path, &self->functions)) {
    dlclose(library);
    return false;
  }
  self->abi_hash = PyUnicode_FromString(self->functions.abi_hash());
  self->version = PyUnicode_FromString(self->functions.version());
  self->names = read_names(self->path, self->functions);
  return self->abi_hash != nullptr && self->version != nullptr && self->names != nullptr;
}

PyObject* payload_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char path_keyword[] = "path";
  static char* names[] = {path_keyword, nullptr};
  PyObject* encoded = nullptr;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&:Payload", names, PyUnicode_FSConverter,
                                   &encoded)) {
    return nullptr;
  }
  const Ref encoded_path(encoded);
  Ref self(PyType_GenericAlloc(type, 0));
  if (!self) return nullptr;
  auto* payload = reinterpret_cast<Payload*>(self.get());
  payload->path =
      PyUnicode_DecodeFSDefaultAndSize(PyBytes_AsString(encoded), PyBytes_Size(encoded));
  return payload->path != nullptr && load(payload, encoded) ? self.release() : nullptr;
}

void payload_dealloc(PyObject* self) {
  auto* payload = reinterpret_cast<Payload*>(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_DecRef(payload->path);
  Py_DecRef(payload->abi_hash);
  Py_DecRef(payload->version);
  Py_DecRef(payload->names);
  PyObject_Free(self);
  Py_DecRef(reinterpret_cast<PyObject*>(type));
}

PyObject* payload_kernel(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return make_kernel(reinterpret_cast<Payload*>(self), arguments, keywords);
}

PyMemberDef members[] = {
    {"abi_hash", T_OBJECT_EX, offsetof(Payload, abi_hash), READONLY, nullptr},
    {"version", T_OBJECT_EX, offsetof(Payload, version), READONLY, nullptr},
    {"names", T_OBJECT_EX, offsetof(Payload, names), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyMethodDef methods[] = {
    {"kernel", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(payload_kernel)),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(payload_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(payload_dealloc)},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"mla_kernels._launcher.Payload", sizeof(Payload), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyTypeObject* make_payload_type() {
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace mla::launcher
