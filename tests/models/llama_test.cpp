#include "testing.hpp"

#include "npu_train/models/llama.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include "models/decoder_rows.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;

namespace {

at::Tensor ids(int64_t batch, int64_t length) { return at::randint(0, 256, {batch, length}, at::kLong); }

}  // namespace

TEST_CASE("Llama: names, shapes and number of parameters") {
  const Model model = llama(llama_tiny_options());
  CHECK(parameters_of(*model.module).numel() == 2 * 256 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 176 + 2 * 64) + 64);
  CHECK(testing::parameter(model, "blocks.1.attention.k_proj.weight").sizes() == at::IntArrayRef({32, 64}));
  CHECK(testing::parameter(model, "blocks.0.mlp.down.weight").sizes() == at::IntArrayRef({64, 176}));
  CHECK(testing::parameter(model, "head.weight").sizes() == at::IntArrayRef({256, 64}));
  auto options = llama_tiny_options();
  options.tie_embeddings = true;
  options.hidden = 0;
  const Model tied = llama(options);
  CHECK(parameters_of(*tied.module).size() + 1 == parameters_of(*model.module).size());
  CHECK(testing::parameter(tied, "blocks.0.mlp.gate.weight").sizes() == at::IntArrayRef({256, 64}));
  CHECK(tied.forward(ids(1, 3)).sizes() == at::IntArrayRef({1, 3, 256}));
}

TEST_CASE("Llama with biases of queries, keys and values") {
  auto options = llama_tiny_options();
  const auto without = parameters_of(*llama(options).module).numel();
  options.qkv_bias = true;
  const Model model = llama(options);
  CHECK(parameters_of(*model.module).numel() == without + 2 * (64 + 2 * 32));
  CHECK(testing::parameter(model, "blocks.1.attention.k_proj.bias").sizes() == at::IntArrayRef({32}));
  CHECK(parameters_of(*model.module).find("blocks.0.attention.proj.bias") == nullptr);
  const auto tokens = ids(1, 4);
  const at::NoGradGuard no_grad;
  const auto before = model.forward(tokens);
  testing::parameter(model, "blocks.0.attention.v_proj.bias").fill_(0.5);
  CHECK_FALSE(at::allclose(model.forward(tokens), before));
}

TEST_CASE("Llama: its norms are norm layers, which stay fp32 where other parameters are cast") {
  const Model model = llama(llama_tiny_options());
  CHECK(norm_parameters_of(*model.module) == std::vector<std::string>{"blocks.0.norm_1.weight", "blocks.0.norm_2.weight",
                                                                      "blocks.1.norm_1.weight", "blocks.1.norm_2.weight", "norm.weight"});
  // In bf16-true, all other parameters are cast, and every layer returns bf16.
  for (const auto& p : parameters_of(*model.module))
    if (p.name.find("norm") == std::string::npos) p.value.set_data(p.value.to(at::kBFloat16));
  CHECK(((model.forward(ids(1, 5)).scalar_type() == at::kBFloat16)));
}

TEST_CASE("Llama: first weights") {
  for (const auto& p : parameters_of(*llama(llama_tiny_options()).module)) {
    CAPTURE(p.name);
    if (p.name.find("norm") != std::string::npos)
      CHECK(((p.value.min().item<double>() == 1 && p.value.max().item<double>() == 1)));
    else
      CHECK(p.value.std().item<double>() == doctest::Approx(0.02).epsilon(0.08));
  }
}

TEST_CASE("Llama: logits of a token depend on the order of earlier tokens, not on later ones") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(1);
  auto options = llama_tiny_options();
  options.layers = 1;  // with more layers, the causal mask alone would make the order visible
  const Model model = llama(options);
  for (const auto& p : parameters_of(*model.module)) p.value.mul_(4);
  const at::Tensor x = ids(2, 9), logits = model.forward(x);
  at::Tensor other = x.clone();
  other.select(1, 5).add_(1).remainder_(256);
  const at::Tensor changed = (model.forward(other) - logits).abs().amax({0, 2});
  CHECK(changed.narrow(0, 0, 5).max().item<double>() < 1e-5);
  CHECK(changed.narrow(0, 5, 4).min().item<double>() > 1e-5);
  at::Tensor swapped = x.clone();
  swapped.select(1, 1).copy_(x.select(1, 2));
  swapped.select(1, 2).copy_(x.select(1, 1));
  CHECK((model.forward(swapped) - logits).select(1, 8).abs().max().item<double>() > 1e-2);
}

TEST_CASE("Llama: a sequence in pieces gives the logits of all tokens at once") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(4);
  const Model model = llama(llama_tiny_options());
  const at::Tensor x = ids(2, 64), expected = model.forward(x);
  const auto more = model.start_sequence();
  int64_t first = 0;
  for (const int64_t size : {5, 1, 7, 1, 50}) {
    const at::Tensor logits = more(x.narrow(1, first, size));
    CHECK((logits - expected.narrow(1, first, size)).abs().max().item<double>() < 1e-5);
    first += size;
  }
  REQUIRE(first == 64);
}

TEST_CASE("Llama: rows of a padded batch give the logits of each text alone, also with a sliding window") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(5);
  auto options = llama_tiny_options();
  for (const int64_t window : {0, 6}) {
    CAPTURE(window);
    options.sliding_window = window;
    testing::check_padded_batch(llama(options), ids(3, 50));
  }
}

TEST_CASE("Llama: packed documents have the logits and gradients of each alone, also with a sliding window") {
  torch::manual_seed(6);
  auto options = llama_tiny_options();
  for (const int64_t window : {0, 6}) {
    CAPTURE(window);
    options.sliding_window = window;
    testing::check_packed_documents(llama(options), ids(1, 60));
  }
}

TEST_CASE("Llama: gradients with checkpointed blocks are equal") {
  torch::manual_seed(2);
  const Model model = llama(llama_tiny_options());
  const at::Tensor x = ids(2, 17), y = ids(2, 17);
  const auto gradients = [&](const Model& m) {
    m.module->zero_grad();
    at::cross_entropy_loss(m.forward(x).flatten(0, 1), y.flatten()).backward();
    return testing::gradients_of(m);
  };
  const auto plain = gradients(model), again = gradients(with_checkpoints(model, {true, true, true, false}));
  testing::check_equal(plain, again);
}

TEST_CASE("Llama: without fused kernels no layer packs its weights, and the logits are the same but for rounding") {
  const auto x = ids(16, 64);  // packing pays from 1024 rows on
  for (const bool tied : {false, true}) {
    auto options = llama_tiny_options();
    options.tie_embeddings = tied;
    const Model fused = llama(options);
    options.fused_kernels = "false";
    const Model plain = llama(options);
    const at::NoGradGuard no_grad;
    for (const auto& p : parameters_of(*plain.module)) p.value.copy_(testing::parameter(fused, p.name));
    int layers = 0;
    for (const auto& module : plain.module->modules())
      if (const auto* linear = dynamic_cast<const Linear*>(module.get())) {
        CHECK_FALSE(linear->packed);
        ++layers;
      }
    CHECK(layers == 2 * 7 + (tied ? 0 : 1));
    CHECK(at::allclose(plain.forward(x), fused.forward(x), 1e-4, 1e-5));
  }
  auto options = llama_tiny_options();
  options.fused_kernels = "off";
  CHECK(testing::has(testing::error_of([&] { llama(options); }).what(), "fused_kernels 'off'; allowed: auto, false"));
}

TEST_CASE("Llama: invalid sizes and inputs are one error each") {
  using testing::says;
  auto options = llama_tiny_options();
  options.heads = 64;
  says([&] { llama(options); }, ErrorKind::Usage, "dim is 64; it must be a multiple of 2 * heads = 128");
  options = llama_tiny_options();
  options.kv_heads = 3;
  says([&] { llama(options); }, ErrorKind::Usage, "heads 4 is not a multiple of kv_heads 3");
  const Model model = llama(llama_tiny_options());
  says([&] { model.forward(ids(1, 65)); }, ErrorKind::Usage, "llama");
  at::Tensor wrong = ids(2, 4);
  wrong[1][2] = 256;
  says([&] { model.forward(wrong); }, ErrorKind::Data, "token 2 of sequence 1 is 256; allowed: 0 to 255");
}
