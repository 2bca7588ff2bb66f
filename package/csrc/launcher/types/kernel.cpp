#include "launcher/types/kernel.h"

#include <unistd.h>

#include <cstring>
#include <iterator>
#include <string>

#include "launcher/arguments/problem.h"
#include "launcher/arguments/scalar.h"
#include "launcher/python/mapping.h"
#include "launcher/types/spec.h"

namespace mla::launcher {
namespace {

struct Kernel {
  PyObject_HEAD Payload* payload;
  int64_t variant;
  Spec spec;
};

PyTypeObject* kernel_type;

bool check(const Kernel& kernel, mla_status status) {
  return status == MLA_OK || refuse_status(status, kernel.payload->functions.last_error());
}

// Runs a function while other threads may use the interpreter. Tensors stay alive, because the
// caller holds the arguments.
template <class Function>
mla_status run_unlocked(Function function) try {
  PyThreadState* state = PyEval_SaveThread();
  const mla_status status = function();
  PyEval_RestoreThread(state);
  return status;
} catch (...) {
  // Up to Python 3.13, a daemon thread that returns while the interpreter ends is unwound from
  // here. It must stay, because destructors would call an interpreter in which it has no state. A
  // payload throws nothing.
  for (;;) pause();
}

using SizeFunction = mla_status (*)(int64_t, const void*, int64_t*);

bool ask_size(const Kernel& kernel, SizeFunction size, Problem& problem, int64_t* bytes) {
  return check(kernel, size(kernel.variant, problem.data(), bytes));
}

// Answers a launch that the payload refused for its buffers: returns the bytes that it lacks where
// a buffer was not given, and otherwise raises.
PyObject* answer_lacking(const Kernel& kernel, Problem& problem, const Buffer& plan,
                         const Buffer& workspace) {
  const Functions& payload = kernel.payload->functions;
  const std::string refusal = payload.last_error();  // which the questions below may replace
  int64_t plan_bytes = 0, workspace_bytes = 0;
  if (!ask_size(kernel, payload.plan_size, problem, &plan_bytes) ||
      !ask_size(kernel, payload.workspace_size, problem, &workspace_bytes) ||
      (plan.given && !check_size("plan", plan, plan_bytes)) ||
      (workspace.given && !check_size("workspace", workspace, workspace_bytes))) {
    return nullptr;
  }
  const long long lacks_plan = plan.given ? 0 : plan_bytes;
  const long long lacks_workspace = workspace.given ? 0 : workspace_bytes;
  if (lacks_plan > 0 || lacks_workspace > 0) {
    return Py_BuildValue("(LL)", lacks_plan, lacks_workspace);
  }
  refuse_status(MLA_WORKSPACE, refusal.c_str());
  return nullptr;
}

PyObject* kernel_launch(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const auto& kernel = *reinterpret_cast<const Kernel*>(self);
  const OpBinding& op = *kernel.spec.op;
  const int expected = op.num_tensors + op.num_scalars + 3;
  if (count != expected) {
    return PyErr_Format(PyExc_TypeError, "launch of %s takes %d arguments, not %zd", op.name,
                        expected, count);
  }
  PyObject* const* scalars = arguments + op.num_tensors;
  PyObject* const* rest = scalars + op.num_scalars;
  Problem problem(kernel.spec);
  if (op.bounds >= 0) {
    const bool planned = kernel.spec.limits[op.requests].of_plan;
    problem.set_bounds_given(planned || arguments[op.bounds] != Py_None);
  }
  if (!problem.use_stream(rest[2])) return nullptr;
  for (int i = 0; i < op.num_tensors; ++i) {
    if (!problem.set_tensor(i, arguments[i])) return nullptr;
  }
  for (int i = 0; i < op.num_scalars; ++i) {
    if (!problem.set_scalar(i, scalars[i])) return nullptr;
  }
  const Functions& payload = kernel.payload->functions;
  Buffer plan, workspace;
  if (!problem.read_buffer("plan", rest[0], false, &plan) ||
      !problem.read_buffer("workspace", rest[1], true, &workspace) || !problem.check_memory()) {
    return nullptr;
  }
  const mla_status status = run_unlocked([&] {
    return payload.launch(kernel.variant, problem.data(), plan.data, plan.bytes, workspace.data,
                          workspace.bytes, problem.stream());
  });
  if (status == MLA_WORKSPACE) return answer_lacking(kernel, problem, plan, workspace);
  if (!check(kernel, status)) return nullptr;
  return none();
}

PyObject* query_size(PyObject* self, PyObject* mapping, SizeFunction size) {
  const auto& kernel = *reinterpret_cast<const Kernel*>(self);
  const Ref arguments = copy_arguments(mapping);
  Problem problem(kernel.spec);
  int64_t bytes = 0;
  if (!arguments || !problem.set_by_name(arguments.get()) ||
      !ask_size(kernel, size, problem, &bytes)) {
    return nullptr;
  }
  return PyLong_FromLongLong(bytes);
}

PyObject* kernel_workspace_size(PyObject* self, PyObject* problem) {
  const auto* kernel = reinterpret_cast<const Kernel*>(self);
  return query_size(self, problem, kernel->payload->functions.workspace_size);
}

PyObject* kernel_plan_size(PyObject* self, PyObject* problem) {
  const auto* kernel = reinterpret_cast<const Kernel*>(self);
  return query_size(self, problem, kernel->payload->functions.plan_size);
}

PyObject* kernel_can_run(PyObject* self, PyObject* mapping) {
  const auto& kernel = *reinterpret_cast<const Kernel*>(self);
  const Ref arguments = copy_arguments(mapping);
  Problem problem(kernel.spec);
  if (!arguments || !problem.set_by_name(arguments.get()) || !problem.check_memory() ||
      !check(kernel, kernel.payload->functions.can_run(kernel.variant, problem.data()))) {
    return nullptr;
  }
  return none();
}

PyObject* kernel_plan(PyObject* self, PyObject* positional, PyObject* keywords) {
  static char problem_keyword[] = "problem", out_keyword[] = "out", stream_keyword[] = "stream";
  static char* names[] = {problem_keyword, out_keyword, stream_keyword, nullptr};
  PyObject *mapping, *out, *stream = Py_None;
  if (!PyArg_ParseTupleAndKeywords(positional, keywords, "OO|O:plan", names, &mapping, &out,
                                   &stream)) {
    return nullptr;
  }
  const auto& kernel = *reinterpret_cast<const Kernel*>(self);
  const Functions& payload = kernel.payload->functions;
  const Ref arguments = copy_arguments(mapping);
  Problem problem(kernel.spec);
  Buffer plan;
  int64_t bytes = 0;
  if (!arguments || !problem.use_stream(stream) || !problem.set_by_name(arguments.get()) ||
      !problem.read_buffer("out", out, true, &plan) || !problem.check_memory() ||
      !ask_size(kernel, payload.plan_size, problem, &bytes) || !check_size("out", plan, bytes)) {
    return nullptr;
  }
  const mla_status status = run_unlocked([&] {
    return payload.plan(kernel.variant, problem.data(), plan.data, plan.bytes, problem.stream());
  });
  if (!check(kernel, status)) return nullptr;
  return none();
}

PyObject* kernel_prepare(PyObject* self, PyObject* device) {
  const auto& kernel = *reinterpret_cast<const Kernel*>(self);
  int64_t ordinal = 0;
  if (!read_count("device", device, INT32_MAX, &ordinal)) return nullptr;
  const mla_status status = run_unlocked([&] {
    return kernel.payload->functions.prepare(kernel.variant, static_cast<int32_t>(ordinal));
  });
  if (!check(kernel, status)) return nullptr;
  return none();
}

void kernel_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_DecRef(reinterpret_cast<PyObject*>(reinterpret_cast<Kernel*>(self)->payload));
  PyObject_Free(self);
  Py_DecRef(reinterpret_cast<PyObject*>(type));
}

bool find_variant(const Payload& payload, const char* name, Kernel* kernel) {
  int64_t count = 0;
  const mla_variant* variants = payload.functions.registry(&count);
  for (int64_t i = 0; i < count; ++i) {
    if (strcmp(variants[i].name, name) != 0) continue;
    kernel->variant = i;
    kernel->spec.op = &kOps[variants[i].op];
    return true;
  }
  return refuse_payload(PyUnicode_FromFormat("%U has no variant %s", payload.path, name));
}

PyCFunction untyped(void (*function)()) { return reinterpret_cast<PyCFunction>(function); }

PyMethodDef methods[] = {
    {"launch", untyped(reinterpret_cast<void (*)()>(kernel_launch)), METH_FASTCALL, nullptr},
    {"plan", untyped(reinterpret_cast<void (*)()>(kernel_plan)), METH_VARARGS | METH_KEYWORDS,
     nullptr},
    {"plan_size", kernel_plan_size, METH_O, nullptr},
    {"workspace_size", kernel_workspace_size, METH_O, nullptr},
    {"can_run", kernel_can_run, METH_O, nullptr},
    {"prepare", kernel_prepare, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec type_spec = {"mla_kernels._launcher.Kernel", sizeof(Kernel), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

}  // namespace

PyTypeObject* make_kernel_type() {
  kernel_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&type_spec));
  return kernel_type;
}

PyObject* make_kernel(Payload* payload, PyObject* positional, PyObject* keywords) {
  static char name_keyword[] = "name", traits_keyword[] = "traits", limits_keyword[] = "limits",
              device_keyword[] = "device";
  static char* names[] = {name_keyword, traits_keyword, limits_keyword, device_keyword, nullptr};
  const char *name, *device;
  PyObject *traits, *limits;
  if (!PyArg_ParseTupleAndKeywords(positional, keywords, "sOOs:kernel", names, &name, &traits,
                                   &limits, &device)) {
    return nullptr;
  }
  Ref self(PyType_GenericAlloc(kernel_type, 0));
  if (!self) return nullptr;
  auto* kernel = reinterpret_cast<Kernel*>(self.get());
  if (!find_variant(*payload, name, kernel) || !read_spec(traits, limits, device, &kernel->spec)) {
    return nullptr;
  }
  Py_IncRef(reinterpret_cast<PyObject*>(payload));
  kernel->payload = payload;
  return self.release();
}

}  // namespace mla::launcher
