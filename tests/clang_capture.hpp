/// Redefines CAPTURE for Clang before version 16: doctest's CAPTURE makes a lambda, and lambdas of that Clang cannot capture structured
/// bindings. Must be included before the tests.
#pragma once

#include "testing.hpp"

#undef CAPTURE
#define CAPTURE_AS(x, name) \
  const auto& name = x;     \
  INFO(#x " := ", name)
#define CAPTURE(x) CAPTURE_AS(x, DOCTEST_ANONYMOUS(captured_))
