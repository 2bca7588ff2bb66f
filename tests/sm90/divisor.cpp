// Quotients by a product and a shift, against the machine's own; prints what differs and exits
// with 1.
#include "cuda/divisor.h"

#include <cstdio>
#include <random>

using mla::cuda::Divisor;

int main() {
  constexpr uint32_t kMost = 0x7fffffff;
  std::mt19937 engine(1);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  bool has_failed = false;
  const auto check = [&](uint32_t dividend, uint32_t number) {
    const Divisor divisor(number);
    const uint32_t quotient = divisor.quotient(dividend);
    if (quotient == dividend / number &&
        divisor.remainder(dividend, quotient) == dividend % number) {
      return;
    }
    std::printf("%u / %u: %u\n", dividend, number, quotient);
    has_failed = true;
  };
  for (int i = 0; i < 1000000; ++i) {
    const uint32_t number = (random() >> random() % 31 & kMost) | 1;
    const uint32_t whole = (random() & kMost) / number * number;
    for (const uint32_t dividend : {whole, whole == 0 ? 0 : whole - 1, random() & kMost}) {
      check(dividend, number);
      check(dividend, number > 1 ? number - 1 : 1);
    }
  }
  for (const uint32_t number : {1u, 2u, 64u, 1u << 30, kMost}) {
    for (const uint32_t dividend : {0u, 1u, 63u, 64u, kMost - 1, kMost}) check(dividend, number);
  }
  return has_failed;
}
