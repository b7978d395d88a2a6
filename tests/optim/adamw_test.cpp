#include "testing.hpp"

#include "adam_cases.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("AdamW against a double-precision reference") { check_against_reference<AdamW>(AdamReference::Decoupled); }

TEST_CASE("AdamW against PyTorch, step by step") { check_against_pytorch<AdamW, AdamWOptions>("adamw"); }

TEST_CASE("AdamW: steps are counted per parameter, and only those taken") { check_counted_steps<AdamW>(); }
