#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/optim/adagrad.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("with equal gradients step t has the length lr / sqrt(t)") {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros({3}, at::kDouble).set_requires_grad(true)});
  Adagrad o(set, {.lr = 0.5, .eps = 0});
  double expected = 0;
  for (int t = 1; t <= 10; ++t) {
    set[0].value.mutable_grad() = at::full({3}, 7.0, at::kDouble);
    o.step();
    expected -= 0.5 / std::sqrt(t);
    CHECK(set[0].value.sub(expected).abs().max().item<double>() < 1e-12);
  }
}

TEST_CASE("a skipped step does not count for lr_decay") {
  const auto set = example_parameters();
  Adagrad o(set, {.lr_decay = 0.1});
  random_gradients(set, 1);
  o.step(found(1));
  o.step(found(0));
  CHECK(o.state().tensors.at("step/fc.bias").item<float>() == 1);
}
