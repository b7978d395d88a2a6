#include "testing.hpp"

#include "npu_train/nn/block_inputs.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <thread>

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

// x times the input "scale", twice; without it, x.
Model scaling() {
  const auto block = [](const at::Tensor& x) {
    const auto scale = BlockInputs::get("scale");
    return scale.defined() ? x * scale : x;
  };
  Model model{.name = "scaling", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}, {.name = "scale", .shape = {1}}};
  model.blocks = {{"a", block}, {"b", block}};
  return chain_blocks(model);
}

}  // namespace

TEST_CASE("fields are read inside of a scope only, by its thread, and the innermost scope holds") {
  CHECK_FALSE(BlockInputs::get("scale").defined());
  {
    const BlockInputs outer(batch_of(2));
    CHECK(BlockInputs::get("scale").item<double>() == 2);
    CHECK_FALSE(BlockInputs::get("other").defined());
    {
      const BlockInputs inner(batch_of(3));
      CHECK(BlockInputs::get("scale").item<double>() == 3);
    }
    CHECK(BlockInputs::get("scale").item<double>() == 2);
    bool seen = true;
    std::thread([&] { seen = BlockInputs::get("scale").defined(); }).join();
    CHECK_FALSE(seen);
    const BlockInputs::State state;
    {
      const BlockInputs inner(batch_of(3));
      const BlockInputs::State::Scope again(state);
      CHECK(BlockInputs::get("scale").item<double>() == 2);
    }
  }
  CHECK_FALSE(BlockInputs::get("scale").defined());
}

TEST_CASE("the blocks of a model of several inputs read the batch of its forward, and an input may be omitted") {
  const Model model = scaling();
  CHECK_FALSE(model.forward.takes_tensor());
  const at::Tensor x = at::arange(3, at::kFloat);
  CHECK(at::equal(model.forward(batch_of(5)).first(), 25 * x));
  CHECK(at::equal(model.forward(x), x));
}

TEST_CASE("a recomputation reads the inputs of its forward, not those of a later one") {
  const Model model = with_checkpoints(scaling(), {true, false});
  Batch batch = batch_of(5);
  batch.set("input", batch.input().clone().requires_grad_(true));
  const at::Tensor loss = model.forward(batch).first().pow(2).sum();
  const BlockInputs later(batch_of(7));
  loss.backward();
  CHECK(at::equal(batch.input().grad(), 2 * 625 * batch.input().detach()));
}

TEST_CASE("a block leaves values for the later blocks of its pass, and for their recomputation") {
  Model model{.name = "leaving", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}};
  model.blocks = {{"a",
                   [](const at::Tensor& x) {
                     BlockInputs::put("first", x.detach().clone());
                     return x * 3;
                   }},
                  {"b", [](const at::Tensor& x) { return x * BlockInputs::get("first"); }}};
  for (const bool recomputed : {false, true}) {
    const Model chained = recomputed ? with_checkpoints(model, {true, true}) : chain_blocks(model);
    CHECK(chained.forward.takes_tensor());
    const at::Tensor one = at::arange(3, at::kFloat).requires_grad_(true), two = at::full({3}, 5.0).requires_grad_(true);
    const at::Tensor sum = chained.forward(one).sum() + chained.forward(two).sum();
    CHECK_FALSE(BlockInputs::get("first").defined());
    sum.backward();
    CHECK(at::equal(one.grad(), 3 * one.detach()));  // d/dx of 3 x first
    CHECK(at::equal(two.grad(), 3 * two.detach()));
  }
  const auto error = testing::error_of([] { BlockInputs::put("first", at::zeros({1})); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK_MESSAGE(std::string(error.what()).find("'first' is put outside of a scope") != std::string::npos, error.what());
}

TEST_CASE("a block gives outputs of its network, each once, whether it is recomputed or not") {
  Model model{.name = "giving", .module = std::make_shared<torch::nn::Module>()};
  model.inputs = {{.name = "input", .shape = {"batch"}}, {.name = "scale", .shape = {1}}};
  model.blocks = {{"a",
                   [](const at::Tensor& x) {
                     at::Tensor y = (x * x).exp();
                     BlockInputs::give("first", y);
                     return y;
                   }},
                  {"b", [](const at::Tensor&) {
                     at::Tensor y = BlockInputs::get("scale") * 2;
                     BlockInputs::give("second", y);
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
    const BlockInputs later(batch_of(7));  // the recomputation gives it nothing
    outputs.at("first").sum().backward();
    CHECK(later.given().fields().empty());
    gradients.push_back(batch.input().grad());
  }
  CHECK(at::equal(gradients[0], gradients[1]));
  CHECK(gradients[0].abs().min().item<double>() > 0);
  CHECK((testing::error_of([] { BlockInputs::give("first", at::zeros({1})); }).kind() == ErrorKind::Usage));
}
