#include "testing.hpp"

#include "npu_train/models/gpt2.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cmath>

#include "models/decoder_rows.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;

namespace {

at::Tensor tokens(int64_t batch, int64_t length) { return at::randint(0, 256, {batch, length}, at::kLong); }

}  // namespace

TEST_CASE("GPT-2 without biases") {
  auto options = gpt2_tiny_options();
  options.bias = false;
  const Model model = gpt2(options);
  CHECK(parameters_of(*model.module).numel() == 256 * 64 + 64 * 64 + 2 * (12 * 64 * 64 + 2 * 64) + 64);
  for (const auto& p : parameters_of(*model.module)) CHECK(!p.name.ends_with("bias"));
  model.forward(tokens(2, 8)).sum().backward();
  CHECK(testing::parameter(model, "ln.weight").grad().defined());
}

TEST_CASE("GPT-2: names, shapes and number of parameters") {
  const Model model = gpt2(gpt2_tiny_options());
  CHECK(parameters_of(*model.module).numel() == 256 * 64 + 64 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64);
  CHECK(parameters_of(*model.module).size() == 2 + 2 * 12 + 2);  // the head has no weight of its own
  CHECK(testing::parameter(model, "token_embedding.weight").sizes() == at::IntArrayRef({256, 64}));
  CHECK(testing::parameter(model, "blocks.1.attention.qkv.weight").sizes() == at::IntArrayRef({192, 64}));
  CHECK(testing::parameter(model, "blocks.0.mlp.fc2.weight").sizes() == at::IntArrayRef({64, 256}));
  CHECK(model.inputs.front().str() == "Long [batch, tokens (64)]");
  const auto o = gpt2_124m_options();
  CHECK(o.vocab_size * o.dim + o.context * o.dim + o.layers * (12 * o.dim * o.dim + 13 * o.dim) + 2 * o.dim == 124439808);
}

TEST_CASE("GPT-2: first weights") {
  auto options = gpt2_tiny_options();
  options.layers = 8;
  const Model model = gpt2(options);
  for (const auto& p : parameters_of(*model.module)) {
    CAPTURE(p.name);
    const double spread = p.value.std().item<double>();
    if (p.name.ends_with("bias")) {
      CHECK(p.value.abs().max().item<double>() == 0);
    } else if (p.name.find("ln") != std::string::npos) {
      CHECK(p.value.min().item<double>() == 1);
    } else if (p.name.ends_with("proj.weight") || p.name.ends_with("fc2.weight")) {
      CHECK(spread == doctest::Approx(0.02 / std::sqrt(16.0)).epsilon(0.06));
    } else {
      CHECK(spread == doctest::Approx(0.02).epsilon(0.06));
    }
  }
}

TEST_CASE("GPT-2: logits of a token depend on earlier tokens and on its place, not on later ones") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(1);
  const Model model = gpt2(gpt2_tiny_options());
  model.module->eval();
  const at::Tensor x = tokens(2, 9);
  const at::Tensor logits = model.forward(x);
  CHECK(logits.sizes() == at::IntArrayRef({2, 9, 256}));
  at::Tensor other = x.clone();
  other.select(1, 5).add_(1).remainder_(256);
  const at::Tensor changed = (model.forward(other) - logits).abs().amax({0, 2});
  CHECK(changed.narrow(0, 0, 5).max().item<double>() < 1e-6);
  CHECK(changed.narrow(0, 5, 4).min().item<double>() > 1e-6);
  CHECK((model.forward(x.narrow(1, 0, 3)) - logits.narrow(1, 0, 3)).abs().max().item<double>() < 1e-5);
  const at::Tensor same = model.forward(at::full({1, 2}, 7, at::kLong));
  CHECK_FALSE(at::equal(same.select(1, 0), same.select(1, 1)));
}

TEST_CASE("GPT-2: a sequence in pieces gives the logits of all tokens at once") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(4);
  auto options = gpt2_tiny_options();
  options.dropout = 0.5;
  const Model model = gpt2(options);
  model.module->eval();
  const at::Tensor x = tokens(2, 64), expected = model.forward(x);
  const auto more = model.start_sequence(), other = model.start_sequence();
  other(tokens(1, 3));  // starts a sequence of its own
  int64_t first = 0;
  for (const int64_t size : {5, 1, 7, 1, 50}) {
    const at::Tensor logits = more(x.narrow(1, first, size));
    CHECK((logits - expected.narrow(1, first, size)).abs().max().item<double>() < 1e-5);
    first += size;
  }
  REQUIRE(first == 64);
  const auto full = testing::error_of([&] { more(tokens(2, 1)); });
  CHECK(((full.kind() == ErrorKind::Usage)));
  CHECK_MESSAGE(std::string(full.what()).find("after 64 others") != std::string::npos, full.what());
}

TEST_CASE("GPT-2: rows of a padded batch give the logits of each text alone") {
  c10::AutoGradMode no_grad(false);
  torch::manual_seed(5);
  const Model model = gpt2(gpt2_tiny_options());
  testing::check_padded_batch(model, tokens(3, 50));
}

TEST_CASE("GPT-2: packed documents have the logits and gradients of each alone") {
  torch::manual_seed(6);
  testing::check_packed_documents(gpt2(gpt2_tiny_options()), tokens(1, 60));
}

TEST_CASE("GPT-2: the blocks of a pass share one mask of packed documents, in the dtype of their scores") {
  const Model model = gpt2(gpt2_tiny_options());
  Batch batch;
  batch.set("input", tokens(1, 12));
  batch.set("position_ids", at::cat({at::arange(5, at::kLong), at::arange(7, at::kLong)}).unsqueeze(0));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    CAPTURE(dtype);
    model.module->to(dtype);
    const ForwardContext context(batch);
    at::Tensor x = model.blocks[1].forward(context, model.blocks[0].forward(context, batch.at("input")));
    const at::Tensor mask = context.get("decoder.mask");
    REQUIRE(mask.defined());
    CHECK((mask.scalar_type() == dtype));
    CHECK(mask.eq(0).sum().item<int64_t>() == 5 * 6 / 2 + 7 * 8 / 2);
    x = model.blocks[2].forward(context, x);
    CHECK(context.get("decoder.mask").is_same(mask));
  }
}

TEST_CASE("GPT-2: gradients with checkpointed blocks are equal, dropout included") {
  auto options = gpt2_tiny_options();
  options.dropout = 0.2;
  torch::manual_seed(2);
  const Model model = gpt2(options);
  const at::Tensor x = tokens(2, 17), y = tokens(2, 17);
  const auto gradients = [&](const Model& m) {
    m.module->zero_grad();
    torch::manual_seed(3);
    at::cross_entropy_loss(m.forward(x).flatten(0, 1), y.flatten()).backward();
    return testing::gradients_of(m);
  };
  const auto plain = gradients(model);
  testing::check_equal(plain, gradients(with_checkpoints(model, {true, true, true, false})));
}

TEST_CASE("GPT-2: invalid sizes and inputs are one error each") {
  using testing::says;
  auto options = gpt2_tiny_options();
  options.heads = 3;
  says([&] { gpt2(options); }, ErrorKind::Usage, "dim 64 is not a multiple of heads 3");
  const Model model = gpt2(gpt2_tiny_options());
  says([&] { model.forward(tokens(1, 65)); }, ErrorKind::Usage, "of 1 to 64 tokens");
  says([&] { model.forward(tokens(1, 4).to(at::kFloat)); }, ErrorKind::Usage, "Long [batch, tokens]");
  at::Tensor wrong = tokens(2, 4);
  wrong[1][2] = 256;
  says([&] { model.forward(wrong); }, ErrorKind::Data, "token 2 of sequence 1 is 256; allowed: 0 to 255");
}
