// The type Payload: a shared library that speaks the C ABI.
#pragma once

#include "launcher/python/python.h"
#include "mla/abi.h"

namespace mla::launcher {

struct Functions {
  decltype(&mla_abi_hash) abi_hash;
  decltype(&mla_version) version;
  decltype(&mla_registry) registry;
  decltype(&mla_can_run) can_run;
  decltype(&mla_plan_size) plan_size;
  decltype(&mla_plan) plan;
  decltype(&mla_workspace_size) workspace_size;
  decltype(&mla_prepare) prepare;
  decltype(&mla_launch) launch;
  decltype(&mla_last_error) last_error;
};

struct Payload {
  PyObject_HEAD Functions functions;
  PyObject* path;
  PyObject* abi_hash;
  PyObject* version;
  PyObject* names;
};

PyTypeObject* make_payload_type();

}  // namespace mla::launcher
