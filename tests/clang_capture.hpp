/// Redefines doctest's messages (INFO, CAPTURE, CHECK_MESSAGE) for Clang before version 16: doctest makes a lambda of each, and lambdas of
/// that Clang cannot capture structured bindings. The text is made at once instead of after a failure. Must be included before the tests.
#pragma once

#include <sstream>
#include <string>

#include "testing.hpp"

namespace npu_train::testing::clang_capture {

template <class... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << doctest::toString(parts));
  return out.str();
}

}  // namespace npu_train::testing::clang_capture

#undef DOCTEST_INFO_IMPL
#define DOCTEST_INFO_IMPL(unused, out, ...)                                     \
  auto DOCTEST_ANONYMOUS(DOCTEST_CAPTURE_) = doctest::detail::MakeContextScope( \
      [text = npu_train::testing::clang_capture::text_of(__VA_ARGS__)](std::ostream* out) { *out << text; })
