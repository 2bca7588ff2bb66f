#pragma once

#include <string_view>

#include "mla/abi.h"

namespace mla {

// A code; the message of the latest error is kept for the thread, see last_error.
class [[nodiscard]] Status {
 public:
  constexpr Status() = default;

  static Status error(mla_status code, std::string_view argument, std::string_view got,
                      std::string_view accepts);

  constexpr bool ok() const { return code_ == MLA_OK; }
  constexpr mla_status code() const { return code_; }

 private:
  constexpr explicit Status(mla_status code) : code_(code) {}

  mla_status code_ = MLA_OK;
};

// Three lines: argument, got, accepts. Valid until the thread's next error.
const char* last_error();

}  // namespace mla

#define MLA_TRY(expression)                                                  \
  do {                                                                       \
    if (::mla::Status mla_try = (expression); !mla_try.ok()) return mla_try; \
  } while (false)
