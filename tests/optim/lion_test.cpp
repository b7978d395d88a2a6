#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/optim/lion.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("each element moves by lr, whatever its gradient") {
  ParameterSet set;
  set.add({.name = "w", .value = at::ones({3}, at::kDouble).set_requires_grad(true)});
  Lion o(set, {.lr = 0.125, .weight_decay = 0.5});
  set[0].value.mutable_grad() = at::tensor({1e-9, -1e9, 3.0}, at::kDouble);
  o.step();
  const double decayed = 1 - 0.125 * 0.5;
  CHECK(at::allclose(set[0].value, at::tensor({decayed - 0.125, decayed + 0.125, decayed - 0.125}, at::kDouble), 0, 1e-12));
  CHECK(o.state().tensors.size() == 1);
}
