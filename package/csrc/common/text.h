#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

namespace mla {

// Concatenates strings and numbers to a message.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string result;
  const auto append = [&result](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_integral_v<Part>) {
      result += std::to_string(part);
    } else if constexpr (std::is_floating_point_v<Part>) {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%g", static_cast<double>(part));
      result += digits;
    } else {
      result += std::string_view(part);
    }
  };
  (append(parts), ...);
  return result;
}

}  // namespace mla
