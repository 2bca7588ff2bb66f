// Which types exchange tensors through DLPack's C functions.
#pragma once

#include "launcher/python/python.h"
#include "launcher/tensors/dlpack.h"

namespace mla::launcher {

struct Exchange {
  PyTypeObject* type;
  const dlpack::ExchangeApi* api;  // null: objects of exactly this type go through __dlpack__
};

// The types that have been looked up. They are owned, so that no other type can take their address.
// A program with more types of tensors looks the others up at every call.
inline constexpr int kMaxExchanges = 16;
extern Exchange exchanges[kMaxExchanges];

// Finds what `exchange_api` returns for a type that is not the first of `exchanges`.
const dlpack::ExchangeApi* find_exchange_api(PyTypeObject* type);

// Returns the functions that exchange tensors of this type, or null without an exception where
// there are none. Most programs use one type of tensor, which is compared first.
inline const dlpack::ExchangeApi* exchange_api(PyTypeObject* type) {
  return exchanges[0].type == type ? exchanges[0].api : find_exchange_api(type);
}

}  // namespace mla::launcher
