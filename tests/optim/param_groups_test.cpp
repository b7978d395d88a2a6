#include "testing.hpp"

#include "helpers.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("biases, normalisation parameters and scalars go to group 1, chosen groups stay") {
  auto set = example_parameters();
  set.add({.name = "temperature", .value = at::ones({})});
  set.add({.name = "conv3d.bias", .value = at::ones({1, 2})});
  set.add({.name = "head.weight", .value = at::ones({2}), .group = 2});
  const auto split = split_no_decay(set);
  std::vector<int> groups;
  for (const auto& p : split) groups.push_back(p.group);
  CHECK(groups == std::vector<int>{0, 1, 0, 1, 1, 1, 2});
  CHECK(set[1].group == 0);
  CHECK(split[0].value.is_same(set[0].value));
}

TEST_CASE("the default groups") {
  const auto groups = default_groups();
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].decay_mult == 1);
  CHECK(groups[1].decay_mult == 0);
  CHECK(groups[1].lr_mult == 1);
}
