/// Included before the tests by Clang before 16: its lambdas, of which CAPTURE makes one, cannot capture what a structured binding names.
#pragma once

#include "testing.hpp"

#undef CAPTURE
#define CAPTURE_AS(x, name) \
  const auto& name = x;     \
  INFO(#x " := ", name)
#define CAPTURE(x) CAPTURE_AS(x, DOCTEST_ANONYMOUS(captured_))
