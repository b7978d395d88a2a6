#include "testing.hpp"

#include "npu_train/base/parameter_set.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

using namespace npu_train;
using npu_train::testing::error_of;

namespace {

ParameterSet three() {
  return ParameterSet(
      {{"a", at::ones({2, 3}).requires_grad_()}, {"b", at::zeros({4}).requires_grad_(), 1}, {"c", at::zeros({}).requires_grad_(), 1, 2}});
}

}  // namespace

TEST_CASE("parameters are found by name and kept in order") {
  const auto set = three();
  CHECK(set.size() == 3);
  CHECK(set.numel() == 11);
  CHECK(set[1].name == "b");
  REQUIRE(set.find("c") != nullptr);
  CHECK(set.find("c")->owner == 2);
  CHECK(set.find("d") == nullptr);
  CHECK(set.values()[0].is_same(set[0].value));
  const auto copy = set;  // shares the tensors
  CHECK(copy[0].value.is_same(set[0].value));
}

TEST_CASE("empty and repeated names and undefined tensors are refused, and leave the set as it was") {
  auto set = three();
  for (auto bad : {Parameter{"", at::ones({1})}, Parameter{"a", at::ones({1})}, Parameter{"x", {}}}) {
    CHECK(error_of([&] { set.add(bad); }).kind() == ErrorKind::Usage);
  }
  CHECK(set.size() == 3);
  CHECK(set.find("x") == nullptr);
  set.add({"d", at::ones({1})});
  CHECK(set.find("d")->value.numel() == 1);
}

TEST_CASE("gradients that are missing are omitted; zero_grad drops or clears") {
  const auto set = three();
  CHECK(set.grads().empty());
  set[0].value.mutable_grad() = at::full({2, 3}, 5);
  set[2].value.mutable_grad() = at::full({}, 5);
  CHECK(set.grads().size() == 2);
  set.zero_grad(false);
  REQUIRE(set[0].value.grad().defined());
  CHECK(set[0].value.grad().sum().item<float>() == 0);
  CHECK_FALSE(set[1].value.grad().defined());
  set.zero_grad();
  CHECK(set.grads().empty());
}

TEST_CASE("filter keeps order, groups and owners") {
  const auto rest = three().filter([](const Parameter& p) { return p.group == 1; });
  REQUIRE(rest.size() == 2);
  CHECK(rest[0].name == "b");
  CHECK(rest.find("c")->owner == 2);
  CHECK(rest.find("a") == nullptr);
}

TEST_CASE("a tensor under a second name is an alias, not another parameter") {
  auto set = three();
  set.add({"tied", set[0].value});
  CHECK(set.size() == 3);
  CHECK(set.numel() == 11);
  CHECK(set.aliases() == std::vector<std::pair<std::string, std::string>>{{"tied", "a"}});
  CHECK(set.find("tied") == nullptr);
  CHECK(error_of([&] { set.add({"tied", at::ones({1})}); }).kind() == ErrorKind::Usage);
  set.add({"equal", set[0].value.detach().clone()});  // equal numbers are not one tensor
  CHECK(set.size() == 4);
  CHECK(set.filter([](const Parameter& p) { return p.name == "a"; }).aliases().size() == 1);
  CHECK(set.filter([](const Parameter& p) { return p.name != "a"; }).aliases().empty());
}
