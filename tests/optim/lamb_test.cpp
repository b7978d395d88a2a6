#include "testing.hpp"

#include "helpers.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("LAMB against a double-precision reference") {
  for (const double decay : {0.0, 0.1})
    for (const auto type : {at::kDouble, at::kFloat}) {
      CAPTURE(decay);
      Lamb o(example_parameters(type), {.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = decay});
      const AdamReference r{.kind = AdamReference::Lamb, .lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .decay = decay};
      CHECK(compare_with(o, std::vector<AdamReference>(4, r), 10) < (type == at::kDouble ? 1e-12 : 1e-5));
    }
}

TEST_CASE("the bias correction of fp32 parameters keeps its digits") {
  ParameterSet set;
  set.add({.name = "w", .value = at::ones({2}).set_requires_grad(true)});
  Lamb o(set, {.lr = 1, .betas = {0.9, 0.99999}, .eps = 1, .weight_decay = 0});
  set[0].value.mutable_grad() = at::tensor({1.0f, 3.0f});
  o.step();
  const double r1 = 1.0 / 2, r2 = 3.0 / 4, trust = std::sqrt(2.0) / std::hypot(r1, r2);  // r = g / (|g| + eps)
  CHECK(set[0].value[0].item<double>() == doctest::Approx(1 - trust * r1).epsilon(2e-6));
  CHECK(set[0].value[1].item<double>() == doctest::Approx(1 - trust * r2).epsilon(2e-6));
}

TEST_CASE("the ratio is 1 where a norm is 0") {
  ParameterSet set;
  set.add({.name = "w", .value = at::zeros({4}).set_requires_grad(true)});
  Lamb o(set, {.lr = 0.5, .weight_decay = 0});
  set[0].value.mutable_grad() = at::ones({4});
  o.step();
  CHECK(at::allclose(set[0].value, at::full({4}, -0.5), 1e-4, 0));
  set[0].value.mutable_grad() = at::zeros({4});
  Lamb still(set, {.weight_decay = 0});
  const auto before = set[0].value.detach().clone();
  still.step();
  CHECK(at::equal(set[0].value, before));
}

TEST_CASE("a larger gradient gives the same first step: that is what the ratio is for") {
  for (const double scale : {1.0, 1000.0}) {
    ParameterSet set;
    set.add({.name = "w", .value = at::full({4}, 2.0).set_requires_grad(true)});
    Lamb o(set, {.lr = 0.1, .weight_decay = 0});
    set[0].value.mutable_grad() = at::full({4}, scale);
    o.step();
    CHECK(at::allclose(set[0].value, at::full({4}, 1.8), 1e-4, 0));
  }
}
