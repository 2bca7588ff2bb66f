#include "launcher/tensors/exchange_api.h"

#include "launcher/tensors/torch_tensor.h"

namespace mla::launcher {

Exchange exchanges[kMaxExchanges];

namespace {

int num_exchanges;

const dlpack::ExchangeApi* find_api(PyTypeObject* type) {
  const Ref capsule(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  if (!capsule) return nullptr;
  const auto* api = static_cast<const dlpack::ExchangeApi*>(
      PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major != dlpack::kMajor) api = api->previous;
  return api != nullptr && api->export_tensor != nullptr ? api : nullptr;
}

}  // namespace

Exchange find_exchange(PyTypeObject* type) {
  for (int i = 0; i < num_exchanges; ++i) {
    if (exchanges[i].type == type) return exchanges[i];
  }
  const TorchType torch = torch_type(type);
  // Subclasses inherit the functions, which would see through a FakeTensor or any other wrapper to
  // memory that it does not have.
  const Exchange found{type, torch == TorchType::subclass ? nullptr : find_api(type),
                       torch != TorchType::none};
  PyErr_Clear();
  if (num_exchanges < kMaxExchanges) {
    Py_IncRef(reinterpret_cast<PyObject*>(type));
    exchanges[num_exchanges++] = found;
  }
  return found;
}

}  // namespace mla::launcher
