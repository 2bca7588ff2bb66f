// Which types of tensors there are, and which exchange them through DLPack's C functions.
#pragma once

#include "launcher/python/python.h"
#include "launcher/tensors/dlpack.h"

namespace mla::launcher {

struct Exchange {
  PyTypeObject* type;
  const dlpack::ExchangeApi* api;  // null: objects of exactly this type go through __dlpack__
  bool is_torch;                   // a torch tensor, whose bits that DLPack drops are checked
};

// The types that have been looked up. They are owned, so that no other type can take their address.
// A program with more types of tensors looks the others up at every call.
inline constexpr int kMaxExchanges = 16;
extern Exchange exchanges[kMaxExchanges];

// Finds what `exchange_of` returns for a type that is not the first of `exchanges`.
Exchange find_exchange(PyTypeObject* type);

// Returns how objects of this type are exchanged. Most programs use one type of tensor, which is
// compared first.
inline Exchange exchange_of(PyTypeObject* type) {
  return exchanges[0].type == type ? exchanges[0] : find_exchange(type);
}

}  // namespace mla::launcher
