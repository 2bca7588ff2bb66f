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

// Registers the classes of errors, a mapping from the name of a status, or "payload", to a class.
bool set_errors(PyObject* classes);

// Raise an error and return false. They steal `got`, `accepts` and `message`; where one of these is
// null, making it has raised already.
[[gnu::cold]] bool refuse(mla_status status, Argument argument, PyObject* got, PyObject* accepts,
                          Ref cause = Ref());
[[gnu::cold]] bool refuse_payload(PyObject* message);

// Raises what a payload's mla_last_error() says.
[[gnu::cold]] bool refuse_status(mla_status status, const char* last_error);

// Takes the pending exception, which is then no longer pending. Returns null, and leaves it
// pending, where it is not ours to explain, such as KeyboardInterrupt or MemoryError.
Ref take_exception();

// Returns the name of the object's type.
[[gnu::cold]] PyObject* type_text(PyObject* object);

}  // namespace mla::launcher
