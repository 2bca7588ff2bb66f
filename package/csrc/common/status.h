#pragma once

#include <string_view>

#include "mla/abi.h"

namespace mla {

// A status is a code; the thread keeps the message of its latest error for last_error.
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

// Returns three lines: the argument, what it got, what is accepted. They are valid until the
// thread's next error.
const char* last_error();

}  // namespace mla

#define MLA_TRY(expression)                                                  \
  do {                                                                       \
    if (::mla::Status mla_try = (expression); !mla_try.ok()) return mla_try; \
  } while (false)
