#include "launcher/tensors/exchange_api.h"

namespace mla::launcher {

Exchange exchanges[kMaxExchanges];

namespace {

int num_exchanges;

// Returns a name of a module, or null where the module is not imported or lacks it.
Ref torch_type(const char* module, const char* name) {
  const Ref module_name(PyUnicode_FromString(module));
  const Ref imported(module_name ? PyImport_GetModule(module_name.get()) : nullptr);
  Ref found(imported ? PyObject_GetAttrString(imported.get(), name) : nullptr);
  if (!found) PyErr_Clear();
  return found;
}

// Returns whether the type is a subclass of torch.Tensor. Subclasses inherit the functions, which
// would see through a FakeTensor or any other wrapper to memory that it does not have.
bool is_torch_subclass(PyTypeObject* type) {
  const Ref tensor = torch_type("torch", "Tensor");
  if (!tensor || !PyType_Check(tensor.get())) return false;
  PyTypeObject* base = reinterpret_cast<PyTypeObject*>(tensor.get());
  if (type == base || !PyType_IsSubtype(type, base)) return false;
  const Ref parameter = torch_type("torch.nn", "Parameter");
  return reinterpret_cast<PyObject*>(type) != parameter.get();
}

const dlpack::ExchangeApi* find(PyTypeObject* type) {
  if (is_torch_subclass(type)) return nullptr;
  const Ref capsule(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (!capsule) return nullptr;
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major != dlpack::kMajor) api = api->previous;
  return api != nullptr && api->export_tensor != nullptr ? api : nullptr;
}

}  // namespace

const dlpack::ExchangeApi* find_exchange_api(PyTypeObject* type) {
  for (int i = 0; i < num_exchanges; ++i) {
    if (exchanges[i].type == type) return exchanges[i].api;
  }
  const dlpack::ExchangeApi* api = find(type);
  PyErr_Clear();
  if (num_exchanges < kMaxExchanges) {
    Py_INCREF(type);
    exchanges[num_exchanges++] = {type, api};
  }
  return api;
}

}  // namespace mla::launcher
