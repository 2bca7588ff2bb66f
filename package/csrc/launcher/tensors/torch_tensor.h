// What DLPack does not tell of a torch tensor: that its elements are to be negated, and that a
// gradient is wanted.
#pragma once

#include <cstdint>

#include "launcher/python/errors.h"

namespace mla::launcher {

enum class TorchType : uint8_t {
  none,      // no torch tensor
  tensor,    // torch.Tensor or torch.nn.Parameter
  subclass,  // any other subclass
};

TorchType torch_type(PyTypeObject* type);

// Whether torch records gradients in this thread, which is asked at most once per call.
enum class GradMode : int8_t { unknown, off, on };

// Refuses a tensor that has its negative bit set.
//
// @pre The type of `object` is a torch_type().
bool check_no_negative_bit(PyObject* object, Argument argument);

// Refuses a tensor that requires a gradient while gradients are recorded.
//
// @pre check_no_negative_bit() took the tensor.
bool check_no_gradient(PyObject* object, Argument argument, GradMode* mode);

// Returns a view without gradient. Tensor.__dlpack__ refuses a tensor that requires one even where
// none is recorded.
Ref detached(PyObject* object);

}  // namespace mla::launcher
