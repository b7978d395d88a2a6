#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/optim/rmsprop.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("TensorFlow's average of squares starts at 1, and eps is inside the root") {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros({3}, at::kDouble).set_requires_grad(true)});
  RmsProp o(set, {.lr = 1, .alpha = 0.9, .eps = 0.5, .tensorflow = true});
  set[0].value.mutable_grad() = at::full({3}, 2.0, at::kDouble);
  o.step();
  CHECK(set[0].value.sub(-2 / std::sqrt(0.9 + 0.1 * 4 + 0.5)).abs().max().item<double>() < 1e-12);
}

TEST_CASE("only what is configured has state") {
  const auto count = [](const RmsPropOptions& options) { return RmsProp(example_parameters(), options).state().tensors.size(); };
  CHECK(count({}) == 4);
  CHECK(count({.momentum = 0.9}) == 8);
  CHECK(count({.momentum = 0.9, .centered = true}) == 12);
}
