#include "testing.hpp"

#include "npu_train/models/internvl.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cmath>

#include "models/model_cases.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/generate.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;

namespace {

constexpr int64_t kImagePlace = 255;

// Returns texts of 24 tokens; 16 of them, from the third on, are image tokens.
Batch internvl_batch(int64_t n) {
  Batch out;
  out.set("input", at::randn({n, 3, 32, 32}));
  at::Tensor tokens = at::randint(0, 255, {n, 24}, at::kLong);
  tokens.narrow(1, 2, 16).fill_(kImagePlace);
  out.set("tokens", tokens);
  out.size = n;
  return out;
}

}  // namespace

TEST_CASE("InternVL: names, shapes, inputs and blocks") {
  torch::manual_seed(1);
  const Model model = internvl(internvl_tiny_options());
  CHECK((testing::parameter(model, "vision.patch.weight").sizes() == at::IntArrayRef({64, 3, 4, 4})));
  CHECK((testing::parameter(model, "vision.position_embedding.weight").sizes() == at::IntArrayRef({65, 64})));
  CHECK((testing::parameter(model, "projector.fc1.weight").sizes() == at::IntArrayRef({64, 256})));
  CHECK((testing::parameter(model, "language.blocks.1.attention.k_proj.weight").sizes() == at::IntArrayRef({32, 64})));
  CHECK(testing::parameter(model, "vision.blocks.1.scale_2").mean().item<double>() == 1);
  CHECK(testing::parameter(model, "vision.blocks.0.mlp.fc1.weight").std().item<double>() == doctest::Approx(0.02).epsilon(0.05));
  REQUIRE(model.inputs.size() == 2);
  CHECK(model.inputs[0].str() == "Float [batch, 3, 32, 32]");
  CHECK(model.inputs[1].str() == "Long [batch, tokens (64)]");
  std::vector<std::string> names;
  for (const auto& block : model.blocks) names.push_back(block.name);
  CHECK(names == std::vector<std::string>{"vision.embed", "vision.blocks.0", "vision.blocks.1", "projector", "language.embed",
                                          "language.blocks.0", "language.blocks.1", "language.head"});
  const auto places = image_places(model);
  REQUIRE(places.has_value());
  CHECK(places->token == 255);
  CHECK(places->count == 16);
  CHECK(InternVlOptions().image_tokens() == 256);
}

TEST_CASE("InternVL: image tokens take the vectors of their own image, in order, whatever is around them") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(2);
  const Model model = internvl(internvl_tiny_options());
  const Batch both = internvl_batch(2);
  const auto logits = model.forward(both).first();
  CHECK((logits.sizes() == at::IntArrayRef({2, 24, 256})));
  for (const int64_t i : {0, 1}) CHECK((model.forward(both.narrow(i, 1)).first()[0] - logits[i]).abs().max().item<double>() < 1e-5);
  Batch other = both;
  at::Tensor images = both.input().clone();
  images[1].add_(1);
  other.set("input", images);
  const auto changed = model.forward(other).first();
  CHECK((changed[0] - logits[0]).abs().max().item<double>() < 1e-5);
  CHECK((changed[1] - logits[1]).abs().max().item<double>() > 1e-4);
  CHECK((changed[1].narrow(0, 0, 2) - logits[1].narrow(0, 0, 2)).abs().max().item<double>() < 1e-5);  // these tokens precede the image
}

TEST_CASE("InternVL: every parameter gets a gradient from the tokens after the image") {
  torch::manual_seed(6);
  const Model model = internvl(internvl_tiny_options());
  const auto logits = model.forward(internvl_batch(3)).first();
  logits.narrow(1, 18, 6).log_softmax(2).select(2, 7).sum().backward();
  for (const auto& p : parameters_of(*model.module)) {
    REQUIRE_MESSAGE(p.value.grad().defined(), p.name);
    if (!p.name.ends_with("k_proj.bias")) CHECK_MESSAGE(p.value.grad().abs().max().item<double>() > 0, p.name);
  }
}

TEST_CASE("InternVL: recomputed blocks of both networks change no gradient") {
  torch::manual_seed(3);
  const Model model = internvl(internvl_tiny_options());
  const Batch batch = internvl_batch(2);
  const auto gradients = [&](const Model& m) {
    const auto loss = m.forward(batch).first().pow(2).mean();
    m.forward(internvl_batch(1));  // a pass with other tokens, before the backward
    return torch::autograd::grad({loss}, m.module->parameters());
  };
  const auto plain = gradients(model);
  std::vector<bool> marks(model.blocks.size(), true);
  marks.back() = false;
  for (const int64_t every : {1, 3}) {
    testing::check_equal(plain, gradients(with_checkpoints(model, marks, every)));
  }
  const auto costs = block_costs(
      model, [](int64_t n) { return internvl_batch(n); }, 4);
  REQUIRE(costs.size() == model.blocks.size());
  for (const auto& cost : costs) CHECK((cost.saved_bytes > 0 || cost.flops > 0));  // the block of the patches keeps only its input
}

TEST_CASE("InternVL: an answer is generated with the logits of the complete forward") {
  torch::manual_seed(4);
  const Model model = internvl(internvl_tiny_options());
  model.module->eval();
  const Batch batch = internvl_batch(1);
  const Model about = about_image(model, batch.input()[0]);
  c10::AutoGradMode no_grad(false);
  const auto& tokens = batch.at("tokens");
  const auto texts = [](const at::Tensor& logits) { return logits.narrow(2, 0, kImagePlace); };
  const auto expected = texts(model.forward(batch).first());
  CHECK((texts(about.forward(tokens)) - expected).abs().max().item<double>() < 1e-5);
  CHECK(about.forward(tokens).select(2, kImagePlace).max().item<double>() == -INFINITY);  // so an answer never contains another image token
  const auto more = about.start_sequence();
  // First token and length of each piece. The tokens of the image are divided, too.
  const std::vector<std::pair<int64_t, int64_t>> pieces = {{0, 5}, {5, 1}, {6, 14}, {20, 4}};
  for (const auto& piece : pieces) {
    const auto part = [&](const at::Tensor& t) { return t.narrow(1, piece.first, piece.second); };
    CHECK((texts(more(part(tokens))) - part(expected)).abs().max().item<double>() < 1e-4);
  }
  const std::vector<int64_t> prompt(tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + 24);
  GenerateOptions options;
  options.max_new_tokens = 8;
  const auto cached = generate(about, prompt, options);
  options.key_value_cache = false;
  CHECK(generate(about, prompt, options) == cached);
}

TEST_CASE("InternVL: without fused kernels no layer of either network packs its weights, and the logits are the same but for rounding") {
  const Model fused = internvl(internvl_tiny_options());
  auto options = internvl_tiny_options();
  options.fused_kernels = "false";
  const Model plain = internvl(options);
  const at::NoGradGuard no_grad;
  for (const auto& p : parameters_of(*plain.module)) p.value.copy_(testing::parameter(fused, p.name));
  int layers = 0;
  for (const auto& module : plain.module->modules())
    if (const auto* linear = dynamic_cast<const Linear*>(module.get())) {
      CHECK_FALSE(linear->packed);
      ++layers;
    }
  CHECK(layers == 2 * 6 + 2 + 2 * 7 + 1);
  const auto batch = internvl_batch(48);
  CHECK(at::allclose(plain.forward(batch).first(), fused.forward(batch).first(), 1e-4, 1e-5));
}

TEST_CASE("InternVL: what it refuses") {
  const auto refuses = [](const InternVlOptions& o, const std::string& words) {
    const auto error = testing::error_of([&] { internvl(o); });
    CHECK((error.kind() == ErrorKind::Usage));
    CHECK_MESSAGE(std::string(error.what()).find(words) != std::string::npos, error.what());
  };
  auto o = internvl_tiny_options();
  o.pixel_shuffle = 3;
  refuses(o, "image_size 32 is not a multiple of patch_size * pixel_shuffle = 12");
  o = internvl_tiny_options(), o.vision_heads = 3;
  refuses(o, "vision_dim 64 is not a multiple of vision_heads 3");
  o = internvl_tiny_options(), o.image_token = 256;
  refuses(o, "image_token is 256; allowed: 0 to 255");
  o = internvl_tiny_options(), o.context = 16;
  refuses(o, "no room for a question in context 16");
  o = internvl_tiny_options(), o.heads = 5;
  refuses(o, "[internvl] dim is 64");

  const Model model = internvl(internvl_tiny_options());
  Batch batch = internvl_batch(1);
  batch.set("tokens", at::full({1, 17}, kImagePlace, at::kLong));
  auto error = testing::error_of([&] { model.forward(batch); });
  CHECK((error.kind() == ErrorKind::Data));
  CHECK_MESSAGE(std::string(error.what()).find("sequence 0 has 17 image tokens (255), and an image has 16") != std::string::npos,
                error.what());
  batch.erase("tokens");
  error = testing::error_of([&] { model.forward(batch); });
  CHECK_MESSAGE(std::string(error.what()).find("the batch has no 'tokens'") != std::string::npos, error.what());
  CHECK_FALSE(image_places(Model()).has_value());
}
