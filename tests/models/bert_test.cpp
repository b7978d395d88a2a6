#include "testing.hpp"

#include "npu_train/models/bert.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <algorithm>

#include "models/model_cases.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/generate.hpp"
#include "npu_train/nn/module_state.hpp"

using namespace npu_train;

namespace {

at::Tensor bert_tokens(int64_t batch, int64_t length) { return at::randint(0, 258, {batch, length}, at::kLong); }

Batch padded(const at::Tensor& tokens, const std::vector<int64_t>& lengths) {
  Batch out;
  at::Tensor mask = at::zeros_like(tokens);
  for (size_t i = 0; i < lengths.size(); ++i) mask[static_cast<int64_t>(i)].narrow(0, 0, lengths[i]).fill_(1);
  out.set("input", tokens);
  out.set("attention_mask", mask);
  out.size = tokens.size(0);
  return out;
}

BertOptions for_texts() {
  auto options = bert_tiny_options();
  options.num_classes = 3;
  return options;
}

Model in_evaluation(const BertOptions& options) {
  torch::manual_seed(1);
  Model model = bert(options);
  model.module->eval();
  return model;
}

}  // namespace

TEST_CASE("BERT: names, shapes and number of parameters") {
  const Model model = bert(bert_tiny_options());
  const int64_t block = 12 * 64 * 64 + 13 * 64, norm = 2 * 64;
  CHECK(parameters_of(*model.module).numel() == (258 + 64 + 2) * 64 + norm + 2 * block + 64 * 64 + 64 + norm + 258);
  CHECK(testing::parameter(model, "type_embedding.weight").sizes() == at::IntArrayRef({2, 64}));
  CHECK(testing::parameter(model, "blocks.1.attention.k_proj.weight").sizes() == at::IntArrayRef({64, 64}));
  CHECK(testing::parameter(model, "blocks.0.mlp.fc2.weight").sizes() == at::IntArrayRef({64, 256}));
  CHECK(testing::parameter(model, "mlm.bias").sizes() == at::IntArrayRef({258}));
  REQUIRE(model.inputs.size() == 3);
  CHECK(model.inputs[0].str() == "Long [batch, tokens (64)]");
  CHECK(model.inputs[1].name == "attention_mask");
  CHECK(model.inputs[2].name == "token_types");
  CHECK(model.head == "");
  const auto o = bert_base_options();
  CHECK((o.vocab_size + o.context + o.token_types + 2) * o.dim + o.layers * (12 * o.dim * o.dim + 13 * o.dim) + o.dim * o.dim + 3 * o.dim +
            o.vocab_size ==
        109514298);

  const Model texts = bert(for_texts());
  CHECK(texts.num_classes == 3);
  CHECK(texts.head == "classifier");
  CHECK(testing::parameter(texts, "classifier.weight").sizes() == at::IntArrayRef({3, 64}));
  CHECK(parameters_of(*texts.module).numel() == (258 + 64 + 2) * 64 + norm + 2 * block + 64 * 64 + 64 + 3 * 64 + 3);
}

TEST_CASE("BERT: first weights") {
  for (const auto& options : {bert_tiny_options(), for_texts()})
    for (const auto& p : parameters_of(*bert(options).module)) {
      CAPTURE(p.name);
      if (p.name.ends_with("bias")) {
        CHECK(p.value.abs().max().item<double>() == 0);
      } else if (p.name.find("ln") != std::string::npos) {
        CHECK(p.value.min().item<double>() == 1);
        CHECK(p.value.max().item<double>() == 1);
      } else {
        CHECK(p.value.std().item<double>() == doctest::Approx(0.02).epsilon(0.15));
      }
    }
}

TEST_CASE("BERT: a token depends on earlier and later ones, on its place and on its type") {
  c10::AutoGradMode no_grad(false);
  const Model model = in_evaluation(bert_tiny_options());
  const at::Tensor x = bert_tokens(2, 9), logits = model.forward(x);
  CHECK(logits.sizes() == at::IntArrayRef({2, 9, 258}));
  at::Tensor other = x.clone();
  other.select(1, 5).add_(1).remainder_(258);
  CHECK((model.forward(other) - logits).abs().amax({0, 2}).min().item<double>() > 1e-6);
  const at::Tensor same = model.forward(at::full({1, 2}, 7, at::kLong));
  CHECK_FALSE(at::equal(same.select(1, 0), same.select(1, 1)));
  Batch batch = padded(x, {9, 9});
  CHECK((model.forward(batch).first() - logits).abs().max().item<double>() < 1e-5);
  batch.set("token_types", at::zeros_like(x));
  CHECK((model.forward(batch).first() - logits).abs().max().item<double>() < 1e-5);
  batch.set("token_types", at::ones_like(x));
  CHECK((model.forward(batch).first() - logits).abs().max().item<double>() > 1e-3);
}

TEST_CASE("BERT: padding changes nothing of a text") {
  c10::AutoGradMode no_grad(false);
  for (const auto& options : {bert_tiny_options(), for_texts()}) {
    const Model model = in_evaluation(options);
    const at::Tensor x = bert_tokens(1, 11);
    const at::Tensor alone = model.forward(x.narrow(1, 0, 7));
    const at::Tensor both = at::cat({x, bert_tokens(1, 11)});
    at::Tensor result = model.forward(padded(both, {7, 11})).first().narrow(0, 0, 1);
    if (options.num_classes == 0) result = result.narrow(1, 0, 7);
    CHECK((result - alone).abs().max().item<double>() < 2e-6);
    const at::Tensor unmasked = model.forward(both).narrow(0, 0, 1);
    CHECK((unmasked.flatten().narrow(0, 0, 3) - alone.flatten().narrow(0, 0, 3)).abs().max().item<double>() > 3e-5);
  }
}

TEST_CASE("BERT: gradients with checkpointed blocks are equal, dropout and padding included") {
  auto options = bert_tiny_options();
  options.dropout = 0.2;
  torch::manual_seed(2);
  const Model model = bert(options);
  const Batch batch = padded(bert_tokens(2, 17), {17, 5});
  const at::Tensor y = bert_tokens(2, 17);
  const auto gradients = [&](const Model& m) {
    m.module->zero_grad();
    torch::manual_seed(3);
    at::cross_entropy_loss(m.forward(batch).first().flatten(0, 1), y.flatten()).backward();
    return testing::gradients_of(m);
  };
  const auto plain = gradients(model);
  testing::check_equal(plain, gradients(with_checkpoints(model, {true, true, true, false})));
}

TEST_CASE("BERT: invalid sizes and inputs are one error each") {
  using testing::says;
  auto options = bert_tiny_options();
  options.heads = 3;
  says([&] { bert(options); }, ErrorKind::Usage, "dim 64 is not a multiple of heads 3");
  const Model model = bert(bert_tiny_options());
  says([&] { model.forward(bert_tokens(1, 65)); }, ErrorKind::Usage, "of 1 to 64 tokens");
  at::Tensor wrong = bert_tokens(2, 4);
  wrong[1][2] = 258;
  says([&] { model.forward(wrong); }, ErrorKind::Data, "token 2 of sequence 1 is 258; allowed: 0 to 257");
  Batch batch = padded(bert_tokens(2, 4), {4, 4});
  batch.set("token_types", at::full({2, 4}, 2, at::kLong));
  says([&] { model.forward(batch); }, ErrorKind::Data, "type 0 of sequence 0 is 2; allowed: 0 to 1");
  batch.erase("token_types");
  batch.set("attention_mask", at::ones({2, 5}, at::kLong));
  says([&] { model.forward(batch); }, ErrorKind::Usage, "attention_mask is Long [2, 5]; this batch requires Long [2, 4]");
  says([&] { generate(model, {1, 2}); }, ErrorKind::Usage, "only input");
}
