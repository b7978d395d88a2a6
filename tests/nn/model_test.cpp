#include "testing.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>

#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/model.hpp"

using namespace npu_train;

namespace {

Batch batch_of(double scale) {
  Batch out;
  out.set("input", at::arange(3, at::kFloat));
  out.set("scale", at::full({1}, scale));
  return out;
}

// Returns a model of two blocks, each of which multiplies x by the input "scale", if there is one.
Model scaling() {
  const auto block = [](const ForwardContext& context, const at::Tensor& x) {
    const auto scale = context.get("scale");
    return scale.defined() ? x * scale : x;
  };
  Model model{.name = "scaling", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}, {.name = "scale", .shape = {1}}};
  model.blocks = {{"a", block}, {"b", block}};
  return chain_blocks(model);
}

}  // namespace

TEST_CASE("blocks are chained in order") {
  Model model;
  model.name = "two";
  model.blocks = {{"a", [](const at::Tensor& x) { return x + 1; }}, {"b", [](const at::Tensor& x) { return x * 10; }}};
  model = chain_blocks(std::move(model));
  CHECK(model.forward(at::ones({1})).item<float>() == 20);
  CHECK(model.blocks.size() == 2);
  // Later changes of the list do not affect the chain.
  model.blocks.clear();
  CHECK(model.forward(at::ones({1})).item<float>() == 20);
  CHECK(testing::error_of([] { chain_blocks(Model{}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the blocks of a model of several inputs read the batch of its forward, and an input may be omitted") {
  const Model model = scaling();
  CHECK_FALSE(model.forward.takes_tensor());
  const at::Tensor x = at::arange(3, at::kFloat);
  CHECK(at::equal(model.forward(batch_of(5)).first(), 25 * x));
  CHECK(at::equal(model.forward(x), x));
}

TEST_CASE("the blocks of a model that packs documents read the batch next to its only input") {
  Model model = scaling();
  model.inputs.resize(1);
  // The model's forward takes a batch already.
  CHECK(at::equal(chain_blocks(model).forward(batch_of(5)).first(), 25 * at::arange(3, at::kFloat)));
  model.forward = {};
  CHECK(chain_blocks(model).forward.takes_tensor());
  model.packs_documents = true;
  CHECK(at::equal(chain_blocks(model).forward(batch_of(5)).first(), 25 * at::arange(3, at::kFloat)));
}

TEST_CASE("a recomputation reads the inputs of its forward, not those of a later one") {
  const Model model = with_checkpoints(scaling(), {true, false});
  Batch batch = batch_of(5);
  batch.set("input", batch.input().clone().requires_grad_(true));
  const at::Tensor loss = model.forward(batch).first().pow(2).sum();
  model.forward(batch_of(7));
  loss.backward();
  CHECK(at::equal(batch.input().grad(), 2 * 625 * batch.input().detach()));
}

TEST_CASE("a block leaves values for the later blocks of its pass, and for their recomputation") {
  Model model{.name = "leaving", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}};
  model.blocks = {{"a",
                   [](const ForwardContext& context, const at::Tensor& x) {
                     context.put("first", x.detach().clone());
                     return x * 3;
                   }},
                  {"b", [](const ForwardContext& context, const at::Tensor& x) { return x * context.get("first"); }}};
  for (const bool recomputed : {false, true}) {
    const Model chained = recomputed ? with_checkpoints(model, {true, true}) : chain_blocks(model);
    CHECK(chained.forward.takes_tensor());
    const at::Tensor one = at::arange(3, at::kFloat).requires_grad_(true), two = at::full({3}, 5.0).requires_grad_(true);
    const at::Tensor sum = chained.forward(one).sum() + chained.forward(two).sum();
    sum.backward();
    CHECK(at::equal(one.grad(), 3 * one.detach()));  // block a gives 3 x, whose derivative is 3; block b multiplies by a detached x
    CHECK(at::equal(two.grad(), 3 * two.detach()));
  }
}

TEST_CASE("a task may run its model twice in one context: each pass has its own values") {
  Model model{.name = "once", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}, {.name = "scale", .shape = {1}}};
  model.blocks = {{"a", [](const ForwardContext& context, const at::Tensor& x) {
                     CHECK_FALSE(context.get("put").defined());
                     context.put("put", x);
                     context.give("out", x);
                     return x;
                   }}};
  model = chain_blocks(std::move(model));
  const ForwardContext context(batch_of(5));
  CHECK(model.forward(context).fields().size() == 1);
  CHECK(model.forward(context).fields().size() == 1);
  CHECK_FALSE(context.get("put").defined());
}

TEST_CASE("a block gives outputs of its network, each once, whether it is recomputed or not") {
  Model model{.name = "giving", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}, {.name = "scale", .shape = {1}}};
  model.blocks = {{"a",
                   [](const ForwardContext& context, const at::Tensor& x) {
                     at::Tensor y = (x * x).exp();
                     context.give("first", y);
                     return y;
                   }},
                  {"b", [](const ForwardContext& context, const at::Tensor&) {
                     at::Tensor y = context.get("scale") * 2;
                     context.give("second", y);
                     return y;
                   }}};
  std::vector<at::Tensor> gradients;
  for (const bool recomputed : {false, true}) {
    const Model chained = recomputed ? with_checkpoints(model, {true, true}) : chain_blocks(model);
    Batch batch = batch_of(5);
    batch.set("input", at::full({3}, 0.5).requires_grad_(true));
    const auto outputs = chained.forward(batch);
    REQUIRE(outputs.fields().size() == 2);
    CHECK(outputs.fields()[0].first == "first");
    CHECK(outputs.at("second").item<double>() == 10);
    outputs.at("first").sum().backward();
    gradients.push_back(batch.input().grad());
  }
  CHECK(at::equal(gradients[0], gradients[1]));
  CHECK(gradients[0].abs().min().item<double>() > 0);
}

// The context must not keep the outputs: outputs keep the graph, the graph keeps the recomputation, and that keeps the context.
TEST_CASE("the graph of a recomputed block that gives an output is released") {
  Model model{.name = "giving", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}, {.name = "scale", .shape = {1}}};
  model.blocks = {{"a", [](const ForwardContext& context, const at::Tensor& x) {
                     at::Tensor y = (x * x).exp();
                     context.give("out", y);
                     return y;
                   }}};
  const Model chained = with_checkpoints(std::move(model), {true});
  Batch batch = batch_of(5);
  batch.set("input", at::full({3}, 0.5).requires_grad_(true));
  c10::weak_intrusive_ptr<c10::TensorImpl> watched(batch.input().getIntrusivePtr());
  { const auto outputs = chained.forward(batch); }
  batch = {};
  CHECK(watched.expired());
}
