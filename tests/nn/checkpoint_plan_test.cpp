#include "testing.hpp"

#include <ATen/ATen.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules.h>

#include "npu_train/nn/checkpoint_plan.hpp"
#include "reference/tensor.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using Kind = CheckpointPlan::Kind;

namespace {

// Returns three convolutions with batch norm, of which the middle one is wide, and a head.
Model net() {
  namespace nn = torch::nn;
  at::manual_seed(1);
  struct Net : nn::Module {};
  auto module = std::make_shared<Net>();
  Model model{.name = "net", .module = module, .num_classes = 5};
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    auto block = module->register_module(
        name, nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)), nn::BatchNorm2d(out), nn::ReLU()));
    model.blocks.push_back({name, [block](const at::Tensor& x) mutable { return block->forward(x); }});
  };
  add("one", 3, 4);
  add("two", 4, 16);
  add("three", 16, 4);
  auto fc = module->register_module("fc", nn::Linear(4, 5));
  model.blocks.push_back({"head", [fc](const at::Tensor& x) mutable { return fc->forward(x.mean({2, 3})); }});
  return chain_blocks(std::move(model));
}

at::Tensor images(int64_t n) { return reference::values({n, 3, 8, 8}, 7, at::kFloat); }

Batch batch_of_images(int64_t n) {
  Batch out;
  out.set("input", images(n));
  return out;
}

}  // namespace

TEST_CASE("plans are read from text, and what is none is refused with what is allowed") {
  CHECK((CheckpointPlan::parse("none").kind == Kind::None));
  CHECK((CheckpointPlan::parse("blocks").kind == Kind::Blocks));
  CHECK(CheckpointPlan::parse("every:3").every == 3);
  CHECK(CheckpointPlan::parse("budget:2GiB").budget == int64_t{2} << 30);
  CHECK(CheckpointPlan::parse("budget:1.5MB").budget == 1500000);
  for (const char* bad : {"", "all", "every:0", "every:2.5", "every:", "every:x", "budget:", "budget:2", "budget:-1GiB", "budget:2Gi",
                          "budget:1e30GiB", "budget:nanGiB"}) {
    CAPTURE(bad);
    const auto e = error_of([&] { CheckpointPlan::parse(bad); });
    CHECK((e.kind() == ErrorKind::Usage));
    CHECK(has(e.what(), "every:N"));
  }
}

TEST_CASE("costs are what autograd saves, extrapolated to the batch") {
  const auto model = net();
  const auto before = model.module->buffers()[0].clone();
  const at::Tensor random = at::rand({1});
  at::manual_seed(1);
  const auto costs = block_costs(model, batch_of_images, 10);
  at::manual_seed(1);
  REQUIRE(costs.size() == 4);
  CHECK(costs[0].name == "one");
  CHECK(costs[0].input_bytes == 10 * 3 * 64 * 4);
  CHECK(costs[0].flops == 10 * 2 * 27 * 4 * 64);
  // The block saves the results of the convolution and of the ReLU, and the batch's statistics, but not running statistics and parameters.
  CHECK(costs[1].saved_bytes >= 10 * 2 * 16 * 64 * 4);
  CHECK(costs[1].saved_bytes <= 10 * 2 * 16 * 64 * 4 + 1024);
  CHECK(at::equal(model.module->buffers()[0], before));
}

TEST_CASE("a budget frees the most bytes a FLOP first, and never the last block") {
  const std::vector<BlockCost> costs = {{"a", 10, 100, 1000}, {"b", 10, 100, 10}, {"c", 10, 400, 4000}, {"head", 10, 50, 1}};
  CHECK(peak_bytes(costs, {false, false, false, false}) == 690);
  CHECK((choose_checkpoints(costs, 1000) == std::vector<bool>{false, false, false, false}));
  CHECK((choose_checkpoints(costs, 600) == std::vector<bool>{false, true, false, false}));
  CHECK(peak_bytes(costs, {false, true, false, false}) == 590);
  CHECK((choose_checkpoints(costs, 1) == std::vector<bool>{true, true, true, false}));
  CHECK(peak_bytes(costs, {true, true, true, false}) == 430);  // the peak is in the backward of c
}

TEST_CASE("a checkpointed model computes the same, in pieces of one block or several") {
  auto model = net();
  model.module->train();
  const at::Tensor x = images(4);
  const auto run = [&](const Model& m) {
    for (auto& b : model.module->buffers()) b.zero_();
    const at::Tensor y = m.forward(x);
    auto grads = torch::autograd::grad({y.square().sum()}, model.module->parameters());
    grads.push_back(y);
    for (const auto& b : model.module->buffers()) grads.push_back(b.clone());
    return grads;
  };
  const auto plain = run(model);
  for (const int64_t every : {1, 2, 9}) {
    const auto wrapped = with_checkpoints(model, {true, true, true, false}, every);
    CHECK(static_cast<int64_t>(wrapped.blocks.size()) == (every == 1 ? 4 : every == 2 ? 3 : 2));
    const auto got = run(wrapped);
    for (size_t i = 0; i < plain.size(); ++i) CHECK(at::equal(got[i], plain[i]));
  }
  const auto some = with_checkpoints(model, {true, false, true, false}, 2);
  CHECK(some.blocks.size() == 4);
  CHECK(at::equal(run(some)[0], plain[0]));
}

TEST_CASE("a model of one piece has nothing to cut") {
  auto model = net();
  model.blocks.clear();
  CHECK(has(error_of([&] { with_checkpoints(model, {}, 1); }).what(), "declares no blocks"));
  CHECK((error_of([&] { block_costs(model, batch_of_images, 4); }).kind() == ErrorKind::Usage));
}
