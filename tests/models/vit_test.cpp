#include "testing.hpp"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <limits>
#include <map>

#include "models/model_cases.hpp"
#include "npu_train/models/vit.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/nn/fuse.hpp"
#include "npu_train/nn/module_state.hpp"
#include "reference/formula.hpp"

using namespace npu_train;

namespace {

VitOptions little() {
  VitOptions o;
  o.num_classes = 5;
  o.image_size = 16;
  o.patch_size = 4;
  o.dim = 32;
  o.depth = 3;
  o.heads = 4;
  return o;
}

}  // namespace

TEST_CASE("parameter counts of torchvision at 1000 classes") {
  CHECK(parameters_of(*vit(vit_b16_options()).module).numel() == 86567656);
  CHECK(parameters_of(*vit(vit_b32_options()).module).numel() == 88224232);
  CHECK(parameters_of(*vit(vit_tiny_options()).module).numel() == 5717416);
  CHECK(parameters_of(*vit(vit_small_options()).module).numel() == 22050664);
  CHECK(parameters_of(*vit(vit_tiny_cifar10_options()).module).numel() == 5362762);
  // Computes the size of vit_l16 by formula, without a gigabyte of memory: depth blocks of 12 d^2 + 13 d, patches, positions, class token,
  // norm, head.
  const VitOptions l = vit_l16_options();
  const int64_t d = l.dim;
  CHECK(l.depth * (12 * d * d + 13 * d) + 16 * 16 * 3 * d + d + 197 * d + d + 2 * d + 1000 * d + 1000 == 304326632);
}

TEST_CASE("names and shapes are torchvision's") {
  VitOptions o = vit_tiny_options();
  o.num_classes = 7;
  std::map<std::string, std::vector<int64_t>> s;
  for (const auto& [name, v] : named_state(*vit(o).module)) s[name] = v.sizes().vec();
  CHECK(s.size() == 152);
  CHECK(s.at("class_token") == std::vector<int64_t>{1, 1, 192});
  CHECK(s.at("conv_proj.weight") == std::vector<int64_t>{192, 3, 16, 16});
  CHECK(s.at("conv_proj.bias") == std::vector<int64_t>{192});
  CHECK(s.at("encoder.pos_embedding") == std::vector<int64_t>{1, 197, 192});
  const std::string layer = "encoder.layers.encoder_layer_11.";
  CHECK(s.at(layer + "ln_1.weight") == std::vector<int64_t>{192});
  CHECK(s.at(layer + "self_attention.in_proj_weight") == std::vector<int64_t>{576, 192});
  CHECK(s.at(layer + "self_attention.in_proj_bias") == std::vector<int64_t>{576});
  CHECK(s.at(layer + "self_attention.out_proj.weight") == std::vector<int64_t>{192, 192});
  CHECK(s.at(layer + "ln_2.bias") == std::vector<int64_t>{192});
  CHECK(s.at(layer + "mlp.0.weight") == std::vector<int64_t>{768, 192});
  CHECK(s.at(layer + "mlp.3.weight") == std::vector<int64_t>{192, 768});
  CHECK(s.at("encoder.ln.weight") == std::vector<int64_t>{192});
  CHECK(s.at("heads.head.weight") == std::vector<int64_t>{7, 192});
}

TEST_CASE("split projections with converted weights: logits and gradients") {
  VitOptions o = little();
  const Model fused = vit(o);
  testing::fill_by_formula(fused);
  o.qkv = "split";
  Model split = vit(o);
  const auto report = load_weights(split, named_state(*fused.module));
  CHECK(report.complete());
  CHECK(report.converted.size() == 18);

  const at::Tensor x = testing::formula_images("x", 3, 16), y = testing::formula_labels(3, 5, 0);
  const at::Tensor a = fused.forward(x), b = split.forward(x);
  CHECK((a - b).abs().max().item<double>() < 1e-5);
  at::cross_entropy_loss(a, y).backward();
  at::cross_entropy_loss(b, y).backward();
  for (const auto& p : parameters_of(*fused.module)) {
    at::Tensor got;
    const auto at = p.name.find("in_proj_");
    if (at == std::string::npos) {
      got = testing::parameter(split, p.name).grad();
    } else {
      const std::string stem = p.name.substr(0, at), kind = p.name.substr(at + 8);
      got = at::cat({testing::parameter(split, stem + "q_proj." + kind).grad(), testing::parameter(split, stem + "k_proj." + kind).grad(),
                     testing::parameter(split, stem + "v_proj." + kind).grad()});
    }
    CHECK_MESSAGE((got - p.value.grad()).abs().max().item<double>() < 1e-4 * std::max(1.0, p.value.grad().abs().max().item<double>()),
                  p.name);
  }
  // Loads in the other direction, too.
  Model again = vit(little());
  CHECK(load_weights(again, named_state(*split.module)).complete());
  CHECK(at::equal(testing::parameter(again, "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"),
                  testing::parameter(fused, "encoder.layers.encoder_layer_0.self_attention.in_proj_weight")));
}

TEST_CASE("fused and split forms of equal seed have equal weights") {
  c10::AutoGradMode no_grad(false);
  VitOptions o = little();
  torch::manual_seed(3);
  const Model fused = vit(o);
  o.qkv = "split";
  torch::manual_seed(3);
  const Model split = vit(o);
  const at::Tensor x = at::randn({2, 3, 16, 16});
  CHECK((fused.forward(x) - split.forward(x)).abs().max().item<double>() < 1e-5);
}

TEST_CASE("first weights") {
  const Model model = vit(vit_tiny_options());
  const std::string layer = "encoder.layers.encoder_layer_0.";
  const auto spread = [&](const std::string& name) { return testing::parameter(model, name).std().item<double>(); };
  CHECK(testing::parameter(model, "class_token").abs().max().item<float>() == 0);
  CHECK(spread("encoder.pos_embedding") == doctest::Approx(0.02).epsilon(0.05));
  CHECK(spread("conv_proj.weight") == doctest::Approx(std::sqrt(1.0 / 768)).epsilon(0.05));
  CHECK(spread(layer + "self_attention.in_proj_weight") == doctest::Approx(std::sqrt(2.0 / (4 * 192))).epsilon(0.05));
  CHECK(spread(layer + "mlp.0.weight") == doctest::Approx(std::sqrt(2.0 / (192 + 768))).epsilon(0.05));
  CHECK(spread("heads.head.weight") == doctest::Approx(0.02).epsilon(0.05));
  CHECK(testing::parameter(model, layer + "ln_1.weight").min().item<float>() == 1);
  int64_t biases = 0;
  for (const auto& p : parameters_of(*model.module)) {
    if (!p.name.ends_with("bias")) continue;
    CHECK_MESSAGE(p.value.abs().max().item<float>() == 0, p.name);
    ++biases;
  }
  CHECK(biases > 0);
}

TEST_CASE("attention mask") {
  c10::AutoGradMode no_grad(false);
  const Model model = vit(little());
  testing::fill_by_formula(model);
  model.module->eval();
  const at::Tensor x = testing::formula_images("x", 2, 16);
  const at::Tensor open = model.forward(x);

  set_attention_mask(model, at::ones({17, 17}, at::kBool));
  CHECK(at::allclose(model.forward(x), open, 1e-5, 1e-5));

  // A class token that attends only to itself does not depend on the image.
  at::Tensor alone = at::ones({17, 17}, at::kBool);
  alone[0].narrow(0, 1, 16).fill_(false);
  set_attention_mask(model, alone);
  const at::Tensor masked = model.forward(x);
  CHECK(at::allclose(masked[0], masked[1], 1e-5, 1e-6));
  CHECK_FALSE(at::allclose(open[0], open[1], 1e-3, 1e-3));

  // The same mask, as numbers that are added to the scores.
  at::Tensor scores = at::full({17, 17}, 0.0);
  scores[0].narrow(0, 1, 16).fill_(-std::numeric_limits<float>::infinity());
  set_attention_mask(model, scores);
  CHECK(at::allclose(model.forward(x), masked, 1e-5, 1e-6));
  set_attention_mask(model, {});
  CHECK(at::equal(model.forward(x), open));

  VitOptions o = little();
  o.attention_mask = "causal";
  const Model causal = vit(o);
  testing::fill_by_formula(causal);
  causal.module->eval();
  CHECK(at::allclose(causal.forward(x), masked, 1e-5, 1e-6));  // the class token is the first token
  CHECK(testing::error_of([] { set_attention_mask(Model{.name = "other"}, {}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("dropout and drop path act in training only") {
  c10::AutoGradMode no_grad(false);
  const at::Tensor x = testing::formula_images("x", 2, 16);
  for (int which = 0; which < 3; ++which) {
    VitOptions o = little();
    (which == 0 ? o.dropout : which == 1 ? o.attention_dropout : o.drop_path) = 0.5;
    const Model model = vit(o);
    testing::fill_by_formula(model);
    const Model plain = vit(little());
    testing::fill_by_formula(plain);
    model.module->eval();
    CHECK(at::equal(model.forward(x), plain.forward(x)));
    model.module->train();
    torch::manual_seed(1);
    const at::Tensor a = model.forward(x);
    torch::manual_seed(1);
    CHECK(at::equal(model.forward(x), a));
    torch::manual_seed(2);
    CHECK_FALSE(at::equal(model.forward(x), a));
  }
}

TEST_CASE("drop path drops complete samples, rises with depth and keeps the mean") {
  c10::AutoGradMode no_grad(false);
  VitOptions o = little();
  o.drop_path = 0.4;
  const Model model = vit(o);
  testing::fill_by_formula(model);
  const at::Tensor tokens = at::rand({400, 17, 32});
  torch::manual_seed(1);
  // The first block drops nothing. The last one drops a branch of a sample with probability 0.4, and both with 0.16.
  const Model plain = vit(little());
  testing::fill_by_formula(plain);
  CHECK(at::equal(model.blocks[1].forward({}, tokens), plain.blocks[1].forward({}, tokens)));
  const at::Tensor unchanged = (model.blocks[3].forward({}, tokens) == tokens).flatten(1).all(1);
  CHECK(unchanged.to(at::kFloat).mean().item<double>() == doctest::Approx(0.16).epsilon(0.4));
  const at::Tensor one = tokens.narrow(0, 0, 1);
  const at::Tensor mean = model.blocks[3].forward({}, one.expand({400, 17, 32})).mean(0);
  CHECK((mean - plain.blocks[3].forward({}, one)[0]).abs().mean().item<double>() < 0.15);
}

TEST_CASE("gelu: exact and tanh differ a little") {
  c10::AutoGradMode no_grad(false);
  VitOptions o = little();
  const Model exact = vit(o);
  testing::fill_by_formula(exact);
  o.gelu = "tanh";
  const Model tanh = vit(o);
  testing::fill_by_formula(tanh);
  const at::Tensor x = testing::formula_images("x", 2, 16);
  const double apart = (exact.forward(x) - tanh.forward(x)).abs().max().item<double>();
  CHECK(apart > 0);
  CHECK(apart < 1e-2);
}

TEST_CASE("impossible options and images are refused") {
  const auto refused = [](const std::function<void(VitOptions&)>& change) {
    VitOptions o = little();
    change(o);
    return testing::error_of([&] { vit(o); }).kind() == ErrorKind::Usage;
  };
  CHECK(refused([](VitOptions& o) { o.patch_size = 5; }));
  CHECK(refused([](VitOptions& o) { o.heads = 5; }));
  CHECK(refused([](VitOptions& o) { o.depth = 0; }));
  CHECK(refused([](VitOptions& o) { o.dropout = 1.0; }));
  CHECK(refused([](VitOptions& o) { o.qkv = "both"; }));
  CHECK(refused([](VitOptions& o) { o.gelu = "erf"; }));
  CHECK(refused([](VitOptions& o) { o.attention_mask = "window"; }));
  const Model model = vit(little());
  const auto error = testing::error_of([&] { model.forward(at::randn({2, 3, 32, 32})); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(std::string(error.what()).find("image_size") != std::string::npos);
}

TEST_CASE("a vision transformer fuses, and keeps its value for any batch") {
  torch::manual_seed(7);
  c10::AutoGradMode no_grad(false);
  const FuseOptions any_time{
      .min_saving = -std::numeric_limits<double>::infinity(), .max_memory_overhead = 1e9, .max_error = 1e-5, .repeats = 1};
  const Model model = vit({.num_classes = 10, .image_size = 32, .patch_size = 8, .dim = 32, .depth = 2, .heads = 2});
  model.module->eval();
  const at::Tensor x = at::randn({3, 3, 32, 32}), want = model.forward(x).clone();
  const auto fused = fuse(model, any_time);
  CAPTURE(fused.report.str());
  CHECK(fused.report.kept() == 2);  // only the first layers of both MLPs
  for (const auto& p : fused.report.patterns) CHECK(p.pattern == "Linear+GELU");
  CHECK(((fused.model.forward(x) - want).abs().max() / want.abs().max()).item<double>() < 1e-5);
}
