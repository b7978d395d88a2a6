#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "npu_train/base/parameter_set.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

ParameterSet three() {
  return ParameterSet(
      {{"a", at::ones({2, 3}).requires_grad_()}, {"b", at::zeros({4}).requires_grad_(), 1}, {"c", at::zeros({}).requires_grad_(), 1}});
}

}  // namespace

TEST_CASE("parameters are found by name and kept in order") {
  const auto set = three();
  CHECK(set.size() == 3);
  CHECK(set.numel() == 11);
  CHECK(set[1].name == "b");
  REQUIRE(set.find("c") != nullptr);
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

TEST_CASE("filter keeps order and groups") {
  const auto rest = three().filter([](const Parameter& p) { return p.group == 1; });
  REQUIRE(rest.size() == 2);
  CHECK(rest[0].name == "b");
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
  set.add({"equal", set[0].value.detach().clone()});  // equal numbers do not make it the same tensor
  CHECK(set.size() == 4);
  CHECK(set.filter([](const Parameter& p) { return p.name == "a"; }).aliases().size() == 1);
  CHECK(set.filter([](const Parameter& p) { return p.name != "a"; }).aliases().empty());
  auto copies = three();
  copies.add_aliases_of(set);
  CHECK(copies.size() == 3);
  CHECK(copies.aliases() == set.aliases());
  ParameterSet without;
  without.add_aliases_of(set);
  CHECK(without.aliases().empty());
}

TEST_CASE("a slice shares the memory of its parameter, in the order in which that is in memory") {
  const auto value = at::arange(2 * 3 * 2 * 2).to(at::kFloat).reshape({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  const Parameter p{.name = "w", .value = value.clone().set_requires_grad(true), .group = 1};
  const auto slice = p.slice(5, 9);
  CHECK(slice.name == "w");
  CHECK(slice.group == 1);
  CHECK(slice.is_slice());
  CHECK(slice.whole().is_same(p.value));
  CHECK(slice.value.is_leaf());
  CHECK(slice.value.requires_grad());
  CHECK_FALSE(slice.value.is_view());
  CHECK(slice.value.is_alias_of(p.value));
  const auto in_memory = value.permute({0, 2, 3, 1}).flatten();
  CHECK(at::equal(slice.value.detach(), in_memory.narrow(0, 5, 9)));
  // Accepts another layout and dtype, and returns the elements at the slice's positions.
  CHECK(at::equal(slice.part_of(value.contiguous().to(at::kDouble)), in_memory.narrow(0, 5, 9).to(at::kDouble)));
  CHECK(slice.is_same_part(p.slice(5, 9)));
  CHECK_FALSE(slice.is_same_part(p.slice(4, 9)));
  CHECK_FALSE(slice.is_same_part(p.slice(5, 8)));
  CHECK_FALSE(slice.is_same_part(p));
  CHECK(p.slice(24, 0).value.numel() == 0);
  CHECK(p.part_of(value).is_same(value));
  ParameterSet set;
  set.add(slice);
  CHECK(set.numel() == 24);  // counts the complete parameter
  for (const auto& [begin, numel] : std::vector<std::pair<int64_t, int64_t>>{{-1, 3}, {0, 25}, {20, 5}, {0, -1}})
    CHECK(has(error_of([&, begin = begin, numel = numel] { p.slice(begin, numel); }).what(), "allowed: slices of complete parameters"));
  CHECK(has(error_of([&] { slice.slice(0, 1); }).what(), "allowed: slices of complete parameters"));
  const Parameter gaps{.name = "g", .value = at::zeros({4, 4}).narrow(1, 0, 2)};
  CHECK(has(error_of([&] { gaps.slice(0, 1); }).what(), "dense in memory"));
}

TEST_CASE("elements outside of a limit are moved to the nearest value, others stay") {
  const ParameterLimit limit{.name = "scale", .least = 0, .most = 4.5};
  const at::Tensor value = at::tensor({-1.0, 0.0, 4.25, 4.5, 9.0});
  CHECK(at::equal(limit.within(value), at::tensor({0.0, 0.0, 4.25, 4.5, 4.5})));
  CHECK(limit.within(at::tensor({testing::kNaN})).isnan().all().item<bool>());
}
