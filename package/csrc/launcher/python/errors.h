// Errors as the classes that mla_kernels registers, raised as class(argument, got, accepts).
#pragma once

#include "launcher/python/python.h"
#include "mla/abi.h"

namespace mla::launcher {

// The argument that an error names; `part` is the index within a pair, or -1.
struct Argument {
  const char* name;
  int part = -1;
};

// Takes a mapping from status name, or "payload", to class.
bool set_errors(PyObject* classes);

// Raise and return false. `got`, `accepts` and `message` are stolen; null says that making them
// has raised already.
[[gnu::cold]] bool refuse(mla_status status, Argument argument, PyObject* got, PyObject* accepts,
                          Ref cause = Ref());
[[gnu::cold]] bool refuse_payload(PyObject* message);

// Raises what a payload's mla_last_error() says.
[[gnu::cold]] bool refuse_status(mla_status status, const char* last_error);

// The pending exception, no longer pending; null, and still pending, when it is none of ours to
// explain, such as KeyboardInterrupt or MemoryError.
Ref take_exception();

// The name of the object's type.
[[gnu::cold]] PyObject* type_text(PyObject* object);

}  // namespace mla::launcher
