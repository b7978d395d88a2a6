#include "testing.hpp"

#include "engine/joined_projections.hpp"

#include <ATen/ATen.h>

#include "npu_train/models/vit.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::has_split_projections;
using npu_train::detail::join_projections;

namespace {

const std::string kStem = "encoder.layers.encoder_layer_0.self_attention.";

NamedTensors split_tensors() {
  NamedTensors out{{"class_token", at::zeros({1, 1, 2})}, {"conv_proj.weight", at::zeros({2, 3, 4, 4})}};
  double value = 1;
  for (const char* part : {"q_proj.", "k_proj.", "v_proj."}) {
    out.emplace_back(kStem + part + "weight", at::full({2, 2}, value));
    out.emplace_back(kStem + part + "bias", at::full({2}, 10 * value++));
  }
  out.emplace_back(kStem + "out_proj.weight", at::zeros({2, 2}));
  out.emplace_back("heads.head.weight", at::zeros({5, 2}));
  return out;
}

}  // namespace

TEST_CASE("q, k and v become one tensor in the place of q; others stay") {
  const auto tensors = split_tensors();
  const auto joined = join_projections(tensors);
  REQUIRE(joined.size() == 6);
  CHECK(joined[2].first == kStem + "in_proj_weight");
  CHECK(at::equal(joined[2].second, at::tensor({1, 1, 2, 2, 3, 3}, at::kFloat).unsqueeze(1).expand({6, 2})));
  CHECK(joined[3].first == kStem + "in_proj_bias");
  CHECK(at::equal(joined[3].second, at::tensor({10, 10, 20, 20, 30, 30}, at::kFloat)));
  CHECK(joined[4].first == kStem + "out_proj.weight");
  ParameterSet parameters;
  for (const auto& [name, value] : tensors) parameters.add({.name = name, .value = value, .group = 1});
  const auto set = join_projections(parameters);
  REQUIRE(set.size() == 6);
  for (size_t i = 0; i < set.size(); ++i) CHECK(set[i].name == joined[i].first);
  CHECK(set[2].group == 1);
  auto missing = tensors;
  missing.erase(missing.begin() + 4);
  CHECK(error_of([&] { join_projections(missing); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("only a ViT with split projections has any") {
  VitOptions small{.num_classes = 5, .image_size = 8, .patch_size = 4, .dim = 4, .depth = 1, .heads = 2};
  CHECK_FALSE(has_split_projections(named_state(*vit(small).module)));
  small.qkv = "split";
  const auto split = named_state(*vit(small).module);
  CHECK(has_split_projections(split));
  CHECK_FALSE(has_split_projections(join_projections(split)));
  CHECK_FALSE(has_split_projections({{"blocks.0.attention.q_proj.weight", at::zeros({2, 2})}}));
  CHECK_FALSE(has_split_projections({{"net.self_attention.q_proj.weight", at::zeros({2, 2})}}));
  CHECK_FALSE(has_split_projections({}));
}

TEST_CASE("the state of an optimizer is joined by slot; a state that differs between the three is refused") {
  State state;
  for (const auto& [name, value] : split_tensors()) {
    state.tensors["exp_avg/" + name] = value + 1;
    state.tensors["step/" + name] = at::tensor(7.0F).squeeze();
  }
  state.values["lr"] = 0.5;
  const auto joined = join_projections(state);
  CHECK(joined.tensors.size() == 12);
  CHECK(joined.number("lr", "optimizer") == 0.5);
  CHECK(at::equal(joined.tensors.at("exp_avg/" + kStem + "in_proj_bias"), at::tensor({11, 11, 21, 21, 31, 31}, at::kFloat)));
  CHECK(joined.tensors.at("step/" + kStem + "in_proj_weight").item<float>() == 7);
  auto other_step = state;
  other_step.tensors["step/" + kStem + "v_proj.bias"] = at::tensor(6.0F).squeeze();
  CHECK(has(error_of([&] { join_projections(other_step); }).what(), "differs from that of k_proj or v_proj"));
  auto frozen = state;
  frozen.tensors.erase("exp_avg/" + kStem + "k_proj.weight");
  const auto e = error_of([&] { join_projections(frozen); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "has no state 'exp_avg/" + kStem + "k_proj.weight'"));
}
