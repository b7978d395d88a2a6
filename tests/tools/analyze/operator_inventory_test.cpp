#include "testing.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "npu_train/precision/autocast.hpp"
#include "npu_train/tools/analyze/operator_inventory.hpp"

using namespace npu_train;

namespace {

const OperatorUse* use_of(const std::vector<OperatorUse>& uses, const std::string& name, const std::string& phase) {
  const auto found = std::find_if(uses.begin(), uses.end(), [&](const OperatorUse& u) { return u.name == name && u.phase == phase; });
  return found == uses.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("operators of forward and backward, with dtype, shapes, counts and layers") {
  at::Tensor weight = at::randn({4, 3}).requires_grad_();
  ParameterSet parameters;
  parameters.add({.name = "head.weight", .value = weight});
  OperatorInventory inventory(parameters);
  inventory.phase_begin(Phase::Forward, 0, 0);
  at::Tensor loss = at::zeros({});
  for (const int64_t rows : {2, 5, 5}) loss = loss + at::relu(at::linear(at::ones({rows, 3}), weight)).sum();
  inventory.phase_end(Phase::Forward, 0, 0);
  at::relu(at::ones({3}));  // outside all phases
  inventory.phase_begin(Phase::Backward, 0, 0);
  loss.backward();
  inventory.phase_end(Phase::Backward, 0, 0);
  const auto uses = inventory.uses();
  const auto* linear = use_of(uses, "linear", "forward");
  REQUIRE(linear != nullptr);
  CHECK(linear->calls == 3);
  CHECK(linear->dtype == "fp32");
  CHECK(linear->distinct_shapes == 2);
  CHECK(linear->shapes[0] == "[2, 3] x [4, 3]");
  CHECK((linear->layers == std::vector<std::string>{"head"}));
  CHECK(linear->flops == 2 * 4 * 3 * (2 + 5 + 5));
  CHECK(linear->autocast.empty());
  CHECK(use_of(uses, "relu", "forward")->calls == 3);
  CHECK(use_of(uses, "threshold_backward", "backward") != nullptr);
  CHECK(use_of(uses, "threshold_backward", "forward") == nullptr);
  for (size_t i = 1; i < uses.size(); ++i) CHECK(uses[i - 1].seconds >= uses[i].seconds);
  CHECK(uses.front().seconds > 0);
}

TEST_CASE("the effect of autocast is reported") {
  const at::Tensor weight = at::randn({4, 3});
  OperatorInventory inventory({});
  inventory.phase_begin(Phase::Forward, 0, 0);
  {
    const Autocast autocast(Device{}, at::kBFloat16);
    const at::Tensor y = at::linear(at::ones({2, 3}), weight);
    at::relu(y);
    at::mse_loss(y, at::zeros({2, 4}));
  }
  inventory.phase_end(Phase::Forward, 0, 0);
  const auto uses = inventory.uses();
  CHECK(use_of(uses, "linear", "forward")->autocast == "to bf16");
  CHECK(use_of(uses, "relu", "forward")->autocast == "as given");
  CHECK(use_of(uses, "mse_loss", "forward")->autocast == "to fp32");
}

TEST_CASE("casts and the promotion of types are not autocast's doing") {
  const at::Tensor weight = at::randn({4, 3});
  OperatorInventory inventory({});
  inventory.phase_begin(Phase::Forward, 0, 0);
  {
    const Autocast autocast(Device{}, at::kBFloat16);
    const at::Tensor y = at::linear(at::ones({2, 3}), weight);  // bf16
    y.to(at::kFloat);
    at::add(y, at::ones({2, 4}));     // promoted to fp32
    at::linear(y, at::ones({2, 4}));  // inputs of two dtypes
    at::cat({y, at::ones({2, 4})});
  }
  inventory.phase_end(Phase::Forward, 0, 0);
  const auto uses = inventory.uses();
  for (const char* name : {"add", "cat"}) CHECK_MESSAGE(use_of(uses, name, "forward") != nullptr, name);
  for (const auto& use : uses) {
    CAPTURE(use.full_name());
    if (use.name.starts_with("ones")) continue;
    CHECK(use.autocast == std::string(use.name == "linear" ? "to bf16" : "as given"));
  }
  CHECK(use_of(uses, "linear", "forward")->computed_in() == "bf16");
  CHECK_FALSE(use_of(uses, "to", "forward")->works);
}

TEST_CASE("every phase between forward and the optimizer's step is listed, others are not") {
  OperatorInventory inventory({});
  for (const auto phase :
       {Phase::Transfer, Phase::Forward, Phase::Reduce, Phase::Unscale, Phase::Clip, Phase::Optimizer, Phase::Callbacks}) {
    inventory.phase_begin(phase, 0, 0);
    at::relu(at::ones({3}));
    inventory.phase_end(phase, 0, 0);
  }
  std::set<std::string> phases;
  for (const auto& use : inventory.uses()) phases.insert(use.phase);
  CHECK((phases == std::set<std::string>{"forward", "reduce", "unscale", "clip", "optimizer"}));
}

TEST_CASE("views and counters are not work, and losses show the number of classes") {
  OperatorInventory inventory({});
  inventory.phase_begin(Phase::Forward, 0, 0);
  const at::Tensor counter = at::zeros({}, at::kLong), x = at::arange(6, at::kLong);
  counter.add_(1);
  x.view({2, 3}).transpose(0, 1);
  x.add(1);
  at::cross_entropy_loss(at::randn({2, 10}), at::zeros({2}, at::kLong));
  inventory.phase_end(Phase::Forward, 0, 0);
  const auto uses = inventory.uses();
  CHECK_FALSE(use_of(uses, "add_", "forward")->works);
  CHECK_FALSE(use_of(uses, "view", "forward")->works);
  CHECK_FALSE(use_of(uses, "transpose", "forward")->works);
  CHECK(use_of(uses, "add", "forward")->works);
  CHECK((inventory.classes() == std::set<int64_t>{10}));
}

TEST_CASE("shapes that follow from values, and reads by the host") {
  OperatorInventory inventory({});
  inventory.phase_begin(Phase::Forward, 0, 0);
  const at::Tensor x = at::arange(6, at::kFloat);
  at::nonzero(x);
  x.index({x > 2});
  x.index({at::tensor({1, 2})});
  x.sum().item<float>();
  inventory.phase_end(Phase::Forward, 0, 0);
  const auto uses = inventory.uses();
  for (const char* name : {"nonzero", "index"}) CHECK_MESSAGE(use_of(uses, name, "forward")->dynamic_shape, name);
  for (const char* name : {"nonzero", "item"}) CHECK_MESSAGE(use_of(uses, name, "forward")->host_read, name);
  CHECK_FALSE((use_of(uses, "sum", "forward")->dynamic_shape || use_of(uses, "sum", "forward")->host_read));
  CHECK(use_of(uses, "index", "forward")->calls == 2);
}
