// Which types exchange tensors through DLPack's C functions.
#pragma once

#include "launcher/python/python.h"
#include "launcher/tensors/dlpack.h"

namespace mla::launcher {

struct Exchange {
  PyTypeObject* type;
  const dlpack::ExchangeApi* api;  // null: objects of exactly this type go through __dlpack__
};

// The types seen so far. They are owned, so that no other type can take their address. A program
// that uses more tensor types than this looks the rest up at every call.
inline constexpr int kMaxExchanges = 16;
extern Exchange exchanges[kMaxExchanges];

// Looks beyond the first.
const dlpack::ExchangeApi* find_exchange_api(PyTypeObject* type);

// Null, with no error set, when there is none. Most programs have one type of tensors.
inline const dlpack::ExchangeApi* exchange_api(PyTypeObject* type) {
  return exchanges[0].type == type ? exchanges[0].api : find_exchange_api(type);
}

}  // namespace mla::launcher
