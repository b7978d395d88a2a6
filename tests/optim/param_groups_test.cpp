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

namespace {

ParameterSet named(const std::vector<std::pair<std::string, int>>& names) {
  ParameterSet set;
  for (const auto& [name, dims] : names)
    set.add({.name = name, .value = at::ones(std::vector<int64_t>(static_cast<size_t>(dims), 2)).set_requires_grad(true)});
  return set;
}

const GroupOptions& group_of(const Optimizer& optimizer, const std::string& name) {
  return optimizer.groups()[static_cast<size_t>(optimizer.parameters().find(name)->group)];
}

std::string message(Optimizer& optimizer, const ParameterGroups& rules) {
  const auto e = error_of([&] { optimizer.set_groups(rules); });
  CHECK(e.kind() == ErrorKind::Usage);
  return e.what();
}

}  // namespace

TEST_CASE("groups by pattern: rate and weight decay of every optimizer are those of two optimizers") {
  for (const auto& name : optimizer_names()) {
    CAPTURE(name);
    const auto start = example_parameters();
    const auto is_fc = [](const Parameter& p) { return p.name.starts_with("fc."); };
    const auto grouped = deep_copy(start), apart = deep_copy(start);
    const auto all = make_optimizer(name, grouped, 0.05, 0.02);
    all->set_groups({.groups = {{.match = "fc", .lr_mult = 0.1, .weight_decay = 0.3}}});
    const auto fc = make_optimizer(name, apart.filter(is_fc), 0.005, 0.3);
    const auto rest = make_optimizer(name, apart.filter([&](const Parameter& p) { return !is_fc(p); }), 0.05, 0.02);
    for (int t = 0; t < 3; ++t) {
      random_gradients(grouped, t);
      for (size_t i = 0; i < start.size(); ++i) apart[i].value.mutable_grad() = grouped[i].value.grad().clone();
      for (auto* o : {all.get(), fc.get(), rest.get()}) o->step();
    }
    for (size_t i = 0; i < start.size(); ++i) CHECK(at::allclose(grouped[i].value, apart[i].value, 1e-6, 1e-7));
    CHECK_FALSE(at::equal(grouped[2].value, start[2].value));
  }
}

TEST_CASE("no_decay and groups: a bias has no weight decay, whatever its group") {
  AdamW o(example_parameters(), {.lr = 0.1, .weight_decay = 0.5, .no_decay = true});
  o.set_groups({.groups = {{.match = "fc", .lr_mult = 0.1, .weight_decay = 0.3}}});
  CHECK(group_of(o, "fc.weight").weight_decay == 0.3);
  CHECK(group_of(o, "fc.weight").decay_mult == 1);
  CHECK(group_of(o, "fc.bias").decay_mult == 0);
  CHECK(group_of(o, "fc.bias").lr_mult == doctest::Approx(0.1));
  CHECK(group_of(o, "conv.weight").lr_mult == 1);
  CHECK(o.parameters().find("norm.weight")->group == 1);
  // Sets groups again, which replaces the earlier rules.
  o.set_groups({.groups = {{.match = "conv.weight", .lr_mult = 2}}});
  CHECK(group_of(o, "conv.weight").lr_mult == 2);
  CHECK(o.parameters().find("fc.weight")->group == 0);
  CHECK(o.parameters().find("fc.bias")->group == 1);
  CHECK(o.groups().size() == 3);
}

TEST_CASE("a group that matches nothing, or a parameter matched twice, is an error by name") {
  Sgd o(example_parameters());
  o.set_groups({.groups = {{.match = "fc", .lr_mult = 0.1}}});
  const auto before = o.groups();
  const auto nothing = message(o, {.groups = {{.match = "backbone.*", .lr_mult = 0.1}}});
  CHECK(nothing.find("optimizer.groups") != std::string::npos);
  CHECK(nothing.find("'backbone.*' matches no parameter") != std::string::npos);
  CHECK(nothing.find("conv.weight") != std::string::npos);  // lists the existing names
  const auto twice = message(o, {.groups = {{.match = "fc"}, {.match = "*.bias", .lr_mult = 2}}});
  CHECK(twice.find("fc.bias matches 'fc' and '*.bias'") != std::string::npos);
  CHECK(message(o, {.groups = {{.match = ""}}}).find("'match'") != std::string::npos);
  CHECK(message(o, {.groups = {{.match = "fc", .lr_mult = -1}}}).find("lr_mult") != std::string::npos);
  CHECK(message(o, {.groups = {{.match = "fc", .weight_decay = -0.5}}}).find("weight_decay") != std::string::npos);
  CHECK(message(o, {.layer_decay = 0}).find("optimizer.layer_decay") != std::string::npos);
  CHECK((o.groups() == before));
}

TEST_CASE("a group may name parameters that are trained later, which then have its rate") {
  const auto all = example_parameters();
  const auto fc = [](const Parameter& p) { return p.name.starts_with("fc."); };
  Sgd o(all.filter([&](const Parameter& p) { return !fc(p); }), {.lr = 1, .momentum = 0});
  o.set_groups({.groups = {{.match = "fc", .lr_mult = 0.5}}}, all);
  CHECK(o.groups().size() == 2);
  o.set_parameters(all);
  CHECK(group_of(o, "fc.weight").lr_mult == 0.5);
  CHECK(group_of(o, "conv.weight").lr_mult == 1);
  o.set_parameters(o.parameters());  // keeps the groups that the parameters have
  CHECK(group_of(o, "fc.weight").lr_mult == 0.5);
}

TEST_CASE("layers counted from the output, by the names of blocks") {
  const auto vit = named({{"cls_token", 3},
                          {"patch.weight", 4},
                          {"patch.bias", 1},
                          {"blocks.0.norm.weight", 1},
                          {"blocks.0.fc.weight", 2},
                          {"blocks.1.fc.weight", 2},
                          {"blocks.10.fc.weight", 2},
                          {"norm.weight", 1},
                          {"norm.bias", 1},
                          {"head.weight", 2},
                          {"head.bias", 1}});
  CHECK(layers_from_output(vit) == std::vector<int>{4, 4, 4, 3, 3, 2, 1, 1, 1, 0, 0});
  const auto resnet = named({{"conv1.weight", 4},
                             {"bn1.weight", 1},
                             {"layer1.0.conv1.weight", 4},
                             {"layer1.1.conv1.weight", 4},
                             {"layer2.0.downsample.0.weight", 4},
                             {"fc.weight", 2}});
  CHECK(layers_from_output(resnet) == std::vector<int>{4, 4, 3, 2, 1, 0});
  const auto torchvision = named({{"conv_proj.weight", 4},
                                  {"encoder.layers.encoder_layer_0.ln_1.weight", 1},
                                  {"encoder.layers.encoder_layer_1.mlp.0.weight", 2},
                                  {"encoder.ln.weight", 1},
                                  {"heads.head.weight", 2}});
  CHECK(layers_from_output(torchvision) == std::vector<int>{3, 2, 1, 1, 0});
  // With a tied head, the last block has the full rate.
  CHECK(layers_from_output(named({{"embed.weight", 2}, {"h.0.w", 2}, {"h.1.w", 2}, {"ln.weight", 1}})) == std::vector<int>{2, 1, 0, 0});
  const auto none = error_of([] { layers_from_output(named({{"w", 2}, {"fc1.weight", 2}})); });
  CHECK(std::string(none.what()).find("no numbered modules") != std::string::npos);
  const auto towers = error_of([] { layers_from_output(named({{"vision.blocks.0.w", 2}, {"text.blocks.0.w", 2}})); });
  CHECK(std::string(towers.what()).find("vision.blocks., text.blocks.") != std::string::npos);
}

TEST_CASE("layer_decay multiplies the rate of a group and leaves its weight decay") {
  const auto set = named({{"embed.weight", 2}, {"blocks.0.w", 2}, {"blocks.1.w", 2}, {"blocks.1.bias", 1}, {"head.weight", 2}});
  OptimizerRegistry registry("optimizer");
  add_builtin_optimizers(registry);
  const auto yaml = parse_yaml("{lr: 1, no_decay: true, layer_decay: 0.5, groups: [{match: embed, lr_mult: 10, weight_decay: 0}]}", "t");
  const auto o = registry.make({.name = "adamw", .options = yaml, .mark = {}}, "optimizer", set);
  CHECK(group_of(*o, "embed.weight").lr_mult == doctest::Approx(10 * 0.125));
  CHECK(group_of(*o, "embed.weight").weight_decay == 0);
  CHECK(group_of(*o, "blocks.0.w").lr_mult == doctest::Approx(0.25));
  CHECK(group_of(*o, "blocks.1.w").lr_mult == doctest::Approx(0.5));
  CHECK(group_of(*o, "blocks.1.w").decay_mult == 1);
  CHECK(group_of(*o, "blocks.1.bias").lr_mult == doctest::Approx(0.5));
  CHECK(group_of(*o, "blocks.1.bias").decay_mult == 0);
  CHECK(group_of(*o, "head.weight").lr_mult == 1);
  const auto refused = [&](const char* text, const char* named) {
    const auto e = error_of([&] { registry.make({.name = "sgd", .options = parse_yaml(text, "t"), .mark = {}}, "optimizer", set); });
    CAPTURE(e.what());
    CHECK(std::string(e.what()).find(named) != std::string::npos);
  };
  refused("{groups: [{match: embed, lr: 0.1}]}", "optimizer.groups.0.lr");
  refused("{groups: {match: embed}}", "optimizer.groups");
  refused("{groups: [{match: ghost}]}", "'ghost' matches no parameter");
  refused("{layer_decay: 2}", "optimizer.layer_decay");
}
