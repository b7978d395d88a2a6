#include "testing.hpp"

#include "adam_cases.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("Adam against a double-precision reference") { check_against_reference<Adam>(AdamReference::Coupled); }

TEST_CASE("Adam against PyTorch, step by step") { check_against_pytorch<Adam, AdamOptions>("adam"); }

TEST_CASE("Adam: steps are counted per parameter, and only those taken") { check_counted_steps<Adam>(); }
