// The type Kernel: one variant of a payload with what it accepts.
#pragma once

#include "launcher/types/payload.h"

namespace mla::launcher {

PyTypeObject* make_kernel_type();

// Implements Payload.kernel(name, traits, limits, device).
PyObject* make_kernel(Payload* payload, PyObject* arguments, PyObject* keywords);

}  // namespace mla::launcher
