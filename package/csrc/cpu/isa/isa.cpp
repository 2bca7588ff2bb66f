#include "cpu/isa/isa.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "cpu/isa/units/units.h"
#include "mla/abi.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mla::cpu {
namespace {

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

constexpr bool bit(unsigned word, int index) { return word >> index & 1; }

// Whether the operating system saves the AMX registers and lets this process use them.
bool amx_enabled() {
  constexpr unsigned kTileState = 3u << 17;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  if (!bit(cpuid(1, 0).ecx, 27)) return false;  // OSXSAVE
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool avx2_works() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         bit(cpuid(1, 0).ecx, 29);
}

bool avx512_works() {
  return avx2_works() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool avx512_bf16_works() { return avx512_works() && bit(cpuid(7, 1).eax, 5); }

// Intel's cores start a vdpbf16ps every second cycle but two fused multiply-adds in each: measured
// on Sapphire Rapids, avx512_bf16 takes 1.5 times as long as avx512.
bool slow_bf16_dot() {
  constexpr unsigned kIntel = 0x756e6547;  // "Genu"
  return cpuid(0, 0).ebx == kIntel;
}

bool amx_bf16_works() {
  const unsigned features = cpuid(7, 0).edx;
  return avx512_bf16_works() && bit(features, 22) && bit(features, 24) && amx_enabled();
}

#endif

struct Choice {
  const Isa* isa;
  const char* refused;
};

Choice choose() {
  const std::vector<const Isa*> supported = supported_isas();
  const char* wanted = std::getenv("MLA_KERNELS_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return {supported.front(), nullptr};
  for (const Isa* isa : supported) {
    if (std::strcmp(isa->name, wanted) == 0) return {isa, nullptr};
  }
  static const std::string refused = wanted;
  return {&kBaseline, refused.c_str()};
}

const Choice& choice() {
  static const Choice chosen = choose();
  return chosen;
}

}  // namespace

std::vector<const Isa*> supported_isas() {
  std::vector<const Isa*> isas;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (amx_bf16_works()) isas.push_back(&kAmxBf16);
  if (avx512_bf16_works() && !slow_bf16_dot()) isas.push_back(&kAvx512Bf16);
  if (avx512_works()) isas.push_back(&kAvx512);
  if (avx512_bf16_works() && slow_bf16_dot()) isas.push_back(&kAvx512Bf16);
  if (avx2_works()) isas.push_back(&kAvx2);
#endif
  isas.push_back(&kBaseline);
  return isas;
}

const Isa& active_isa() { return *choice().isa; }

const char* refused_isa() { return choice().refused; }

}  // namespace mla::cpu

// Names the instruction set in use, for those who ask the library itself; null where
// MLA_KERNELS_CPU_ISA names one that cannot be used.
extern "C" MLA_EXPORT const char* mla_cpu_isa(void) {
  return mla::cpu::refused_isa() == nullptr ? mla::cpu::active_isa().name : nullptr;
}
