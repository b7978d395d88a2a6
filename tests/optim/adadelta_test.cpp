#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/optim/adadelta.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the first step does not depend on the scale of the gradient, but for eps") {
  for (const double scale : {1.0, 1e4}) {
    ParameterSet set;
    set.add({.name = "w", .value = at::zeros({3}, at::kDouble).set_requires_grad(true)});
    Adadelta o(set, {.lr = 1, .rho = 0.9, .eps = 1e-6});
    set[0].value.mutable_grad() = at::full({3}, scale, at::kDouble);
    o.step();
    const double expected = -std::sqrt(1e-6) * scale / std::sqrt(0.1 * scale * scale + 1e-6);
    CHECK(set[0].value.sub(expected).abs().max().item<double>() < 1e-12);
  }
}
