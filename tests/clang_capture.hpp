/// Must precede the tests in Clang before 16: its lambdas cannot capture structured bindings, and CAPTURE makes a lambda.
#pragma once

#include "testing.hpp"

#undef CAPTURE
#define CAPTURE_AS(x, name) \
  const auto& name = x;     \
  INFO(#x " := ", name)
#define CAPTURE(x) CAPTURE_AS(x, DOCTEST_ANONYMOUS(captured_))
