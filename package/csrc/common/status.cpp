#include "common/status.h"

#include <algorithm>
#include <cstddef>

namespace mla {
namespace {

// The array is fixed, so that reporting an error never allocates.
constexpr size_t kCapacity = 1024;
thread_local char text[kCapacity];

char* append(char* at, std::string_view part) {
  const size_t room = static_cast<size_t>(text + kCapacity - 1 - at);
  return std::copy_n(part.data(), std::min(part.size(), room), at);
}

}  // namespace

Status Status::error(mla_status code, std::string_view argument, std::string_view got,
                     std::string_view accepts) {
  char* at = text;
  at = append(append(at, argument), "\n");
  at = append(append(at, got), "\n");
  *append(at, accepts) = '\0';
  return Status(code);
}

const char* last_error() { return text; }

}  // namespace mla
