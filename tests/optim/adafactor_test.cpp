#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/optim/adafactor.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the state of a matrix is one number for each row and column") {
  const auto set = example_parameters();
  const Adafactor o(set);
  const auto state = o.state();
  CHECK(state.tensors.at("row_var/fc.weight").sizes() == at::IntArrayRef({5, 1}));
  CHECK(state.tensors.at("col_var/fc.weight").sizes() == at::IntArrayRef({1, 7}));
  CHECK(state.tensors.at("row_var/conv.weight").sizes() == at::IntArrayRef({4, 3, 2, 1}));
  CHECK(state.tensors.at("variance/fc.bias").sizes() == at::IntArrayRef({5}));
  CHECK(state.tensors.count("variance/fc.weight") == 0);
  CHECK(state.tensors.count("row_var/fc.bias") == 0);
}

TEST_CASE("the first step is relative to the norm of the parameter") {
  ParameterSet set;
  set.add({.name = "w", .value = at::full({4, 4}, 10.0, at::kDouble).set_requires_grad(true)});
  Adafactor o(set, {.lr = 0.01});
  set[0].value.mutable_grad() = at::full({4, 4}, 3.0, at::kDouble);
  o.step();
  CHECK(set[0].value.sub(10 - 0.01 * 10).abs().max().item<double>() < 1e-9);  // the update has a root mean square of 1 before it is scaled
}
