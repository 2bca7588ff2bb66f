// Divides by a number that is known ahead, with a product and a shift.
#pragma once

#include <cstdint>

#include "cuda/host_device.h"

namespace mla::cuda {

// The method is that of Granlund and Montgomery, "Division by Invariant Integers using
// Multiplication", 1994, figure 4.1.
// @pre Dividends are 0 to 2^31 - 1.
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(uint32_t divisor) : divisor_(divisor) {
    while (shift_ < 31 && uint32_t{1} << shift_ < divisor) ++shift_;
    const uint64_t excess = (uint64_t{1} << shift_) - divisor;
    factor_ = static_cast<uint32_t>((excess << 32) / divisor + 1);
  }

  MLA_HOST_DEVICE uint32_t value() const { return divisor_; }

  MLA_HOST_DEVICE uint32_t quotient(uint32_t dividend) const {
    const auto high = static_cast<uint32_t>(uint64_t{dividend} * factor_ >> 32);
    return (high + dividend) >> shift_;
  }
  MLA_HOST_DEVICE uint32_t remainder(uint32_t dividend, uint32_t quotient) const {
    return dividend - quotient * divisor_;
  }

 private:
  uint32_t divisor_ = 1;
  uint32_t factor_ = 1;
  uint32_t shift_ = 0;
};

}  // namespace mla::cuda
