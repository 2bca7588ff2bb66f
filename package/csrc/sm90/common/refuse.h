// The error of what no kernel here does.
#pragma once

#include <string>

#include "common/status.h"
#include "common/text.h"

namespace mla::sm90 {

inline Status refuse(const char* argument, const std::string& got, const std::string& accepts) {
  return Status::error(MLA_UNSUPPORTED, argument, got, accepts);
}

}  // namespace mla::sm90
