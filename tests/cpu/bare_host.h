// What the pool asks of its host, for programs that have nothing of the CPU payload but the pool: a
// number of processors, and an instruction set without kernels.
#pragma once

#include <sched.h>

#include "cpu/isa/isa.h"

// How many processors the process may use, which each program says; the pool has as many threads.
int processors();

extern "C" int sched_getaffinity(pid_t, size_t bytes, cpu_set_t* mask) noexcept {
  CPU_ZERO_S(bytes, mask);
  for (int i = 0; i < processors(); ++i) CPU_SET_S(i, bytes, mask);
  return 0;
}

namespace mla::cpu {

const Isa& active_isa() {
  static const Isa isa = {};
  return isa;
}

const char* refused_isa() { return nullptr; }

std::vector<const Isa*> supported_isas() { return {&active_isa()}; }

}  // namespace mla::cpu
