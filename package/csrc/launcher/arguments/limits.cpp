#include "launcher/arguments/limits.h"

namespace mla::launcher {

PyObject* Limits::text() const {
  const long long first = min, last = max, step = multiple_of;
  if (first == last) return PyUnicode_FromFormat("%lld", first);
  const Ref range(last == INT64_MAX ? PyUnicode_FromFormat("at least %lld", first)
                                    : PyUnicode_FromFormat("%lld to %lld", first, last));
  if (!range) return nullptr;
  return step == 1 ? PyUnicode_FromFormat("%U", range.get())
                   : PyUnicode_FromFormat("%U, multiples of %lld", range.get(), step);
}

}  // namespace mla::launcher
