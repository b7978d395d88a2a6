#include "testing.hpp"

#include "npu_train/models/clip.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cmath>

#include "models/model_cases.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;

namespace {

// Returns texts of 8 tokens, of which token 5 is the end token.
at::Tensor clip_texts(int64_t batch) {
  at::Tensor out = at::randint(1, 256, {batch, 8}, at::kLong);
  out.select(1, 5).fill_(0);
  return out;
}

Batch clip_pairs(int64_t batch) {
  Batch out;
  out.set("input", at::randn({batch, 3, 32, 32}));
  out.set("tokens", clip_texts(batch));
  out.size = batch;
  return out;
}

int64_t block_size(int64_t dim) { return 12 * dim * dim + 13 * dim; }

}  // namespace

TEST_CASE("CLIP: names, shapes and number of parameters") {
  const Model model = clip(clip_tiny_options());
  CHECK(testing::parameter(model, "vision.patch.weight").sizes() == at::IntArrayRef({64, 3, 8, 8}));
  CHECK(testing::parameter(model, "vision.position_embedding.weight").sizes() == at::IntArrayRef({17, 64}));
  CHECK(testing::parameter(model, "text.blocks.1.attention.k_proj.weight").sizes() == at::IntArrayRef({64, 64}));
  CHECK(testing::parameter(model, "text.projection.weight").sizes() == at::IntArrayRef({32, 64}));
  CHECK(testing::parameter(model, "logit_scale").item<double>() == doctest::Approx(std::log(1 / 0.07)));
  REQUIRE(model.inputs.size() == 2);
  CHECK(model.inputs[0].str() == "Float [batch, 3, 32, 32]");
  CHECK(model.inputs[1].name == "tokens");
  CHECK(model.inputs[1].str() == "Long [batch, tokens (64)]");
  const auto o = clip_vit_b32_options();
  const int64_t side = o.image_size / o.patch_size;
  const int64_t vision = o.vision_dim * (1 + 3 * o.patch_size * o.patch_size + side * side + 1 + 4 + o.projection);
  const int64_t text = o.text_dim * (o.vocab_size + o.context + 2 + o.projection);
  CHECK(vision + text + o.vision_layers * block_size(o.vision_dim) + o.text_layers * block_size(o.text_dim) + 1 == 151277313);
  const auto t = clip_tiny_options();
  CHECK(parameters_of(*model.module).numel() ==
        64 * (1 + 3 * 64 + 17 + 4 + 32) + 64 * (256 + 64 + 2 + 32) + (t.vision_layers + t.text_layers) * block_size(64) + 1);
}

TEST_CASE("CLIP: first weights are those of OpenAI's code") {
  const Model model = clip(clip_tiny_options());
  const auto spread = [&](const std::string& name) { return testing::parameter(model, name).std().item<double>(); };
  CHECK(spread("text.token_embedding.weight") == doctest::Approx(0.02).epsilon(0.05));
  CHECK(spread("text.position_embedding.weight") == doctest::Approx(0.01).epsilon(0.05));
  CHECK(spread("vision.position_embedding.weight") == doctest::Approx(1.0 / 8).epsilon(0.1));
  CHECK(spread("text.blocks.0.attention.q_proj.weight") == doctest::Approx(1.0 / 8).epsilon(0.05));
  CHECK(spread("text.blocks.0.attention.proj.weight") == doctest::Approx(1.0 / 16).epsilon(0.05));
  CHECK(spread("vision.blocks.1.mlp.fc1.weight") == doctest::Approx(1 / std::sqrt(128.0)).epsilon(0.05));
  CHECK(spread("vision.blocks.1.mlp.fc2.weight") == doctest::Approx(1.0 / 16).epsilon(0.05));
  CHECK(spread("vision.projection.weight") == doctest::Approx(1.0 / 8).epsilon(0.05));
}

TEST_CASE("CLIP: features have length 1, and those of a text are read at its end") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(1);
  const Model model = clip(clip_tiny_options());
  Batch batch = clip_pairs(3);
  const auto outputs = model.forward(batch);
  const auto& images = outputs.at("image_features");
  const auto& texts = outputs.at("text_features");
  CHECK(images.sizes() == at::IntArrayRef({3, 32}));
  CHECK((images.pow(2).sum(1) - 1).abs().max().item<double>() < 1e-5);
  CHECK((texts.pow(2).sum(1) - 1).abs().max().item<double>() < 1e-5);
  CHECK(outputs.at("scale").item<double>() == doctest::Approx(1 / 0.07));

  at::Tensor later = batch.at("tokens").clone();
  later.narrow(1, 6, 2).fill_(9);  // changes only tokens after the end
  batch.set("tokens", later);
  CHECK((model.forward(batch).at("text_features") - texts).abs().max().item<double>() < 1e-6);
  batch.set("tokens", later.narrow(1, 0, 6));
  CHECK((model.forward(batch).at("text_features") - texts).abs().max().item<double>() < 1e-6);
  later.select(1, 2).fill_(9);
  batch.set("tokens", later);
  CHECK((model.forward(batch).at("text_features") - texts).abs().amax(1).min().item<double>() > 1e-4);
  // Of two end tokens, the first one counts.
  at::Tensor two = batch.at("tokens").clone();
  two.select(1, 7).fill_(0);
  const at::Tensor one = model.forward(batch).at("text_features");
  batch.set("tokens", two);
  CHECK((model.forward(batch).at("text_features") - one).abs().max().item<double>() < 1e-6);
}

TEST_CASE("CLIP: the factor of the products is the exponential of its parameter, which has a gradient everywhere, and limits") {
  auto options = clip_tiny_options();
  const Model model = clip(options);
  const at::Tensor parameter = testing::parameter(model, "logit_scale");
  parameter.detach().fill_(5);
  const at::Tensor scale = model.forward(clip_pairs(1)).at("scale");
  CHECK(scale.item<double>() == doctest::Approx(std::exp(5.0)).epsilon(1e-5));
  scale.backward();
  CHECK(parameter.grad().item<double>() == doctest::Approx(std::exp(5.0)).epsilon(1e-5));
  REQUIRE(model.limits.size() == 1);
  CHECK(model.limits[0].name == "logit_scale");
  CHECK(model.limits[0].least == 0);
  CHECK(model.limits[0].most == doctest::Approx(std::log(100.0)));
  options.max_scale = 0;
  CHECK(clip(options).limits.empty());
  options.max_scale = 0.5;
  CHECK(testing::error_of([&] { clip(options); }).kind() == ErrorKind::Usage);
}

TEST_CASE("CLIP: a text is read at its largest token without an end_token") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(5);
  auto options = clip_tiny_options();
  const Model by_token = clip(options);
  options.end_token = -1;
  torch::manual_seed(5);
  const Model by_size = clip(options);
  Batch batch = clip_pairs(2);
  at::Tensor tokens = batch.at("tokens").clamp_max(200);
  tokens.select(1, 3).fill_(201);
  tokens.select(1, 6).fill_(201);  // the first end token counts
  batch.set("tokens", tokens);
  const at::Tensor found = by_size.forward(batch).at("text_features");
  at::Tensor ended = tokens.clone();
  ended.select(1, 4).fill_(7), ended.select(1, 5).fill_(8), ended.select(1, 6).fill_(9);  // causal: what follows is not read
  batch.set("tokens", ended);
  CHECK((by_size.forward(batch).at("text_features") - found).abs().max().item<double>() < 1e-6);
  CHECK((by_token.forward(batch).at("text_features") - found).abs().max().item<double>() > 1e-3);
}

TEST_CASE("CLIP: one tower has its input and its features alone, and the same parameters") {
  c10::AutoGradMode no_grad(false);
  const Batch batch = clip_pairs(2);
  const auto make = [](const std::string& tower) {
    torch::manual_seed(4);
    auto options = clip_tiny_options();
    options.tower = tower;
    return clip(options);
  };
  const auto both = make("both").forward(batch);
  const Model image = make("image"), text = make("text");
  REQUIRE(image.inputs.size() == 1);
  REQUIRE(text.inputs.size() == 1);
  CHECK(text.inputs[0].name == "input");
  CHECK(at::equal(image.forward(batch.input()), both.at("image_features")));
  CHECK(at::equal(text.forward(batch.at("tokens")), both.at("text_features")));
  CHECK(parameters_of(*image.module).size() == parameters_of(*text.module).size());
}

TEST_CASE("CLIP: every parameter gets a gradient") {
  const Model model = clip(clip_tiny_options());
  const auto outputs = model.forward(clip_pairs(3));
  const auto logits = at::matmul(outputs.at("image_features"), outputs.at("text_features").t()) * outputs.at("scale");
  logits.log_softmax(1).diagonal().sum().backward();
  for (const auto& p : parameters_of(*model.module)) {
    REQUIRE_MESSAGE(p.value.grad().defined(), p.name);
    CHECK_MESSAGE(at::isfinite(p.value.grad()).all().item<bool>(), p.name);
    if (!p.name.ends_with("k_proj.bias")) CHECK_MESSAGE(p.value.grad().abs().max().item<double>() > 0, p.name);
  }
}

TEST_CASE("CLIP: recomputed blocks of both towers change no output and no gradient") {
  torch::manual_seed(5);
  const Model model = clip(clip_tiny_options());
  std::vector<std::string> names;
  for (const auto& block : model.blocks) names.push_back(block.name);
  CHECK(names == std::vector<std::string>{"vision.embed", "vision.blocks.0", "vision.blocks.1", "vision.head", "text.embed",
                                          "text.blocks.0", "text.blocks.1", "text.head"});
  const Batch batch = clip_pairs(3);
  const auto gradients = [&](const Model& m) {
    const auto outputs = m.forward(batch);
    m.forward(clip_pairs(2));  // a pass with other texts, before the backward
    const auto logits = at::matmul(outputs.at("image_features"), outputs.at("text_features").t()) * outputs.at("scale");
    auto out = torch::autograd::grad({logits.log_softmax(1).diagonal().sum()}, m.module->parameters());
    out.push_back(logits);
    return out;
  };
  const auto plain = gradients(model);
  for (const auto& [last, every] : std::vector<std::pair<bool, int64_t>>{{false, 1}, {true, 1}, {false, 5}}) {
    std::vector<bool> marks(model.blocks.size(), true);
    marks.back() = last;
    testing::check_equal(plain, gradients(with_checkpoints(model, marks, every)));
  }
  const auto costs = block_costs(
      model, [](int64_t n) { return clip_pairs(n); }, 8);
  REQUIRE(costs.size() == 8);
  for (const auto& cost : costs) CHECK(cost.saved_bytes > 0);
}

TEST_CASE("CLIP: invalid sizes and inputs are one error each") {
  using testing::says;
  const auto with = [&](const auto& change, const std::string& word) {
    auto options = clip_tiny_options();
    change(options);
    says([&] { clip(options); }, ErrorKind::Usage, word);
  };
  with([](ClipOptions& o) { o.vision_heads = 3; }, "vision_dim 64 is not a multiple of vision_heads 3");
  with([](ClipOptions& o) { o.text_heads = 3; }, "text_dim 64 is not a multiple of text_heads 3");
  with([](ClipOptions& o) { o.patch_size = 5; }, "image_size 32 is not a multiple of patch_size 5");
  with([](ClipOptions& o) { o.end_token = 256; }, "end_token is 256; allowed: -1 to 255");
  with([](ClipOptions& o) { o.tower = "left"; }, "allowed: both, image, text");
  const Model model = clip(clip_tiny_options());
  Batch batch = clip_pairs(1);
  batch.set("input", at::randn({1, 3, 16, 16}));
  says([&] { model.forward(batch); }, ErrorKind::Usage, "requires [N, 3, 32, 32]");
  batch = clip_pairs(1);
  batch.at("tokens")[0][1] = 256;
  says([&] { model.forward(batch); }, ErrorKind::Data, "token 1 of sequence 0 is 256");
  batch.erase("tokens");
  says([&] { model.forward(batch); }, ErrorKind::Usage, "tokens");
}
