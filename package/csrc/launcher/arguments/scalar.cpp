#include "launcher/arguments/scalar.h"

#include <cmath>
#include <cstring>

#include "launcher/python/errors.h"
#include "launcher/python/number.h"

namespace mla::launcher {
namespace {

template <class T>
void put(const ScalarBinding& binding, unsigned char* problem, T number) {
  memcpy(problem + binding.offset, &number, sizeof number);
}

const char* check_text(Check check) {
  switch (check) {
    case Check::finite:
      return "a finite float32";
    case Check::positive:
      return "an integer of at least 1";
    case Check::flag:
      return "True or False";
    case Check::count:
      return "an integer of at least 0";
  }
  return "";
}

// What a scalar is, where the value has another type.
const char* type_text_of(Check check) {
  switch (check) {
    case Check::finite:
      return "a Python float or int";
    case Check::positive:
      return "a Python int of at least 1";
    case Check::flag:
      return "True or False";
    case Check::count:
      return "a Python int of at least 0";
  }
  return "";
}

bool refuse_type(const ScalarBinding& binding, PyObject* value) {
  return refuse(MLA_DTYPE, {binding.name}, type_text(value),
                PyUnicode_FromString(type_text_of(binding.check)));
}

bool refuse_number(const ScalarBinding& binding, PyObject* value, Ref cause = Ref()) {
  return refuse(MLA_RANGE, {binding.name}, number_text(value),
                PyUnicode_FromString(check_text(binding.check)), std::move(cause));
}

bool read_float(const ScalarBinding& binding, PyObject* value, float* number) {
  double wide;
  if (is_instance(value, PyFloat_Type)) {
    wide = PyFloat_AsDouble(value);
  } else if (PyLong_Check(value)) {
    wide = PyLong_AsDouble(value);
    if (wide == -1 && PyErr_Occurred()) {
      Ref cause = take_exception();
      return cause && refuse_number(binding, value, std::move(cause));
    }
  } else {
    return refuse_type(binding, value);
  }
  *number = static_cast<float>(wide);
  return std::isfinite(*number) || refuse_number(binding, value);
}

bool read_integer(const ScalarBinding& binding, PyObject* value, int64_t* number) {
  const bool is_number = binding.check == Check::flag || !PyBool_Check(value);
  if (!is_number || !PyLong_Check(value)) return refuse_type(binding, value);
  int overflow;
  *number = PyLong_AsLongLongAndOverflow(value, &overflow);
  const int64_t min = binding.check == Check::positive ? 1 : 0;
  const int64_t max = binding.check == Check::flag ? 1 : INT64_MAX;
  if (overflow == 0 && *number >= min && *number <= max) return true;
  return refuse_number(binding, value);
}

}  // namespace

bool read_scalar(const ScalarBinding& binding, const Limits& limits, PyObject* value,
                 unsigned char* problem) {
  if (binding.kind == Kind::float32) {
    float number = 0;
    if (!read_float(binding, value, &number)) return false;
    put(binding, problem, number);
    return true;
  }
  int64_t number = 0;
  if (!read_integer(binding, value, &number)) return false;
  if (!limits.contain(number)) {
    return refuse(MLA_RANGE, {binding.name}, number_text(value), limits.text());
  }
  if (binding.kind == Kind::int64) {
    put(binding, problem, number);
  } else {
    put(binding, problem, static_cast<int32_t>(number));
  }
  return true;
}

bool read_count(const char* name, PyObject* value, int64_t max, int64_t* number) {
  if (!read_integer({name, Kind::int64, Check::count, 0, 0}, value, number)) return false;
  if (*number <= max) return true;
  return refuse(MLA_RANGE, {name}, number_text(value),
                PyUnicode_FromFormat("at most %lld", static_cast<long long>(max)));
}

void preset_scalar(const ScalarBinding& binding, unsigned char* problem) {
  switch (binding.kind) {
    case Kind::float32:
      return put(binding, problem, static_cast<float>(binding.preset));
    case Kind::int32:
      return put(binding, problem, static_cast<int32_t>(binding.preset));
    case Kind::int64:
      return put(binding, problem, static_cast<int64_t>(binding.preset));
  }
}

}  // namespace mla::launcher
