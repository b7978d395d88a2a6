#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn/modules.h>

#include <numeric>

#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using npu_train::testing::CraftedDump;
using npu_train::testing::has;
using npu_train::testing::TempDir;
using Cause = Divergence::Cause;

namespace {

// Properties in which programs differ.
struct Program {
  int depth = 2;
  int micro_batches = 1;
  std::string head = "head";
  double dropout = 0;
  double spoiled = 0;  // added to the head's bias after the update
  DumpOptions options{.task = "tensor"};
};

struct Block : torch::nn::Module {
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(8, 8))};
  at::Tensor forward(const at::Tensor& x) { return x + torch::gelu(fc(norm(x))); }
};

struct Tower : torch::nn::Module {
  explicit Tower(const Program& program) : dropout(program.dropout), head(register_module(program.head, torch::nn::Linear(8, 4))) {
    for (int i = 0; i < program.depth; ++i) blocks.push_back(register_module("blocks_" + std::to_string(i), std::make_shared<Block>()));
    at::NoGradGuard no_grad;
    at::manual_seed(1);  // equal weights in all programs
    for (const auto& item : named_parameters()) item.value().copy_(at::randn_like(item.value()) * 0.3);
  }
  at::Tensor forward(at::Tensor x) {
    {
      LayerScope scope("embed", {x});
      x = scope.result(torch::dropout(x * 2, dropout, true));
    }
    for (const auto& block : blocks) x = block->forward(x);
    return head(x);
  }
  double dropout;
  torch::nn::Linear head;
  std::vector<std::shared_ptr<Block>> blocks;
};

DumpComparison compared_programs(const Program& a, const Program& b, const CompareOptions& options = {}) {
  const TempDir dir;
  const auto run = [&](const Program& program, const char* name) {
    Tower net(program);
    AdamW adam(parameters_of(net), {.lr = 1e-3});
    auto how = program.options;
    how.dir = (dir / name).string();
    Dumper dumper(how, dumped_model(net));
    dumper.watch(adam);
    at::manual_seed(7);
    const at::Tensor x = at::randn({8, 8}), target = at::randint(4, {8}, at::kLong);
    adam.zero_grad();
    for (int i = 0; i < program.micro_batches; ++i) {
      dumper.start();
      const auto loss = at::cross_entropy_loss(net.forward(x.chunk(program.micro_batches)[static_cast<size_t>(i)]),
                                               target.chunk(program.micro_batches)[static_cast<size_t>(i)]) /
                        program.micro_batches;
      dumper.loss(loss);
      loss.backward();
    }
    dumper.stop();
    adam.step();
    const at::NoGradGuard no_grad;
    net.head->bias.add_(program.spoiled);
    dumper.step();
    return how.dir;
  };
  const auto left = run(a, "a"), right = run(b, "b");
  return compare_dumps(left, right, options);
}

std::string said(const DumpComparison& result) {
  return result.first.sentence + std::accumulate(result.first.likely.begin(), result.first.likely.end(), std::string(" / ")) +
         std::accumulate(result.first.advice.begin(), result.first.advice.end(), std::string(" / "));
}

}  // namespace

TEST_CASE("other_structure: a block that one side has alone is named before what follows from it") {
  for (const bool deep_a : {true, false}) {
    const Program deep{.depth = 3}, flat{.depth = 2};
    const auto result = deep_a ? compared_programs(deep, flat) : compared_programs(flat, deep);
    CAPTURE(said(result));
    CHECK_FALSE(result.agrees);
    CHECK((result.first.cause == Cause::Model));
    CHECK(result.first.layer == "blocks_2");
    CHECK(has(result.first.sentence, std::string("2 layers with parameters are in ") + (deep_a ? "A" : "B") + " only"));
    CHECK(has(said(result), "in the common part: "));
  }
}

TEST_CASE("other_structure: a different number of micro-batches is not reported as dropped gradients") {
  const auto result = compared_programs({}, {.micro_batches = 2});
  CAPTURE(said(result));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::Input));
  CHECK(has(result.first.sentence, "A runs the network once with an input of [8, 8], B 2 times with an input of [4, 8]"));
  CHECK(has(said(result), "accumulate_grad_batches"));
}

TEST_CASE("other_structure: weights and the optimizer's state are compared between layers with different names") {
  const CompareOptions mapped{.fuzzy = false, .mapping = {{"head", "classifier"}}};
  for (const auto& options : {CompareOptions{}, mapped}) {
    const auto same = compared_programs({}, {.head = "classifier"}, options);
    CAPTURE(to_text(same));
    CHECK(same.agrees);
    CHECK(same.complete);
    CHECK(same.steps.at(0).one_sided == 0);
    const auto spoiled = compared_programs({.spoiled = 0.5}, {.head = "classifier"}, options);
    CHECK_FALSE(spoiled.agrees);
    CHECK((spoiled.first.cause == Cause::Optimizer));
  }
}

TEST_CASE("other_structure: dropout in a declared layer has a cause, and its rate is an option of its operator") {
  const auto hidden = compared_programs({.dropout = 0.1}, {});
  CAPTURE(said(hidden));
  CHECK(hidden.first.layer == "embed");
  CHECK(has(said(hidden), "dropout (random masks)"));
  CHECK(has(said(hidden), "level: mix"));
  const DumpOptions mix{.level = "mix", .task = "tensor"};
  const auto rate = compared_programs({.dropout = 0.1, .options = mix}, {.dropout = 0.2, .options = mix});
  CAPTURE(said(rate));
  CHECK(rate.first.layer == "dropout.0");
  CHECK(has(rate.first.sentence, "is called with different options: Functional.dropout.0.forward.input.1 is 0.1 and 0.2"));
  CHECK(has(said(compared_programs({.dropout = 0.1, .options = mix}, {.options = mix})), "operators on one side only before it"));
}

TEST_CASE("other_structure: a parameter that an operator takes is a weight") {
  const DumpOptions op{.level = "op", .task = "tensor"};
  Program other{.options = op};
  const auto equal = compared_programs(other, other);
  CHECK(equal.agrees);
  int64_t weights = 0;
  for (const auto& call : equal.steps.at(0).calls)
    for (const auto& item : call.items)
      if (call.type == "addmm" && call.direction == "forward" && item.side == "parameters") {
        ++weights;
        CHECK(item.a.ends_with(".input.0"));
        CHECK(item.item_a.parameter.ends_with(".bias"));
      }
  CHECK(weights == 3);  // the transposed weight does not count: its elements have another order
}

TEST_CASE("other_structure: a call without its outputs or weights is not an agreement") {
  const auto written = [](const std::filesystem::path& folder, const std::string& second) {
    CraftedDump dump(folder);
    dump.add_layer("Module.one.Linear.forward.0", CraftedDump::tensor("[4]"), CraftedDump::tensor("[4]"), CraftedDump::tensor("[4, 4]"));
    dump.add_call("Module.two.Linear.forward.0", second);
    return dump.write();
  };
  const auto value = "[" + CraftedDump::tensor("[4]") + "]", weight = R"({"weight": )" + CraftedDump::tensor("[4, 4]") + "}";
  const std::string whole = R"({"input_args": )" + value + R"(, "output": )" + value + R"(, "parameters": )" + weight + "}";
  for (const auto& part : {std::string("{}"), R"({"input_args": )" + value + R"(, "output": [], "parameters": )" + weight + "}",
                           R"({"input_args": )" + value + R"(, "output": )" + value + "}"}) {
    CAPTURE(part);
    const TempDir dir;
    CHECK(compare_dumps(written(dir / "a", whole), written(dir / "b", whole)).agrees);
    for (const bool in_a : {true, false}) {
      const auto result = compare_dumps(written(dir / "a", in_a ? part : whole), written(dir / "b", in_a ? whole : part));
      CAPTURE(said(result));
      CHECK_FALSE(result.agrees);
      CHECK(result.first.layer == "two");
    }
  }
}

namespace {

// Dumps an attention block and a norm, either as our dump shows them or as msprobe shows them for a program in Python.
std::filesystem::path attention_dump(const std::filesystem::path& folder, bool ours, bool norm_has_gradient = true) {
  npu_train::testing::CraftedDump dump(folder);
  const auto x = npu_train::testing::CraftedDump::tensor("[4, 2]"), weight = npu_train::testing::CraftedDump::tensor("[6, 2]");
  const auto call = [&](const std::string& inputs, const std::string& parameters) {
    return R"({"input_args": [)" + inputs + R"(], "output": [)" + x + R"(], "parameters": {)" + parameters + "}}";
  };
  const auto in_proj = R"("in_proj_weight": )" + weight, plain = R"("weight": )" + npu_train::testing::CraftedDump::tensor("[2, 2]");
  const std::string attention = ours ? "Module.attn.Layer." : "Module.attn.MultiheadAttention.";
  dump.add_call("Module.conv.Conv2d.forward.0", call(x, plain));
  if (ours) dump.add_call("Module.attn.in_proj_weight.Parameter.forward.0", call(x, in_proj));
  if (ours) dump.add_call("Module.attn.out_proj.Linear.forward.0", call(x, plain));
  dump.add_call(attention + "forward.0", call(ours ? x : x + ", " + x + ", " + x, in_proj));
  dump.add_call("Module.norm.BatchNorm2d.forward.0", call(x, plain));
  if (ours) dump.add_backward("Module.norm.BatchNorm2d.backward.0", x);  // hooks cannot see this gradient before an in-place ReLU
  const auto share = npu_train::testing::CraftedDump::tensor("[4, 2]", 0.3);
  dump.add_backward(attention + "backward.0", ours ? x : share + ", " + share + ", " + share);
  dump.add_call("Module.attn." + std::string(ours ? "SelfAttention" : "MultiheadAttention") + ".parameters_grad.0",
                R"({"in_proj_weight": [)" + weight + "]}");
  if (norm_has_gradient) dump.add_call("Module.norm.BatchNorm2d.parameters_grad.0", R"({"weight": [)" + x + "]}");
  return dump.write();
}

}  // namespace

TEST_CASE(
    "other_structure: a module that the other program shows as one call, and gradients that it hides, do not make a different model") {
  const npu_train::testing::TempDir dir;
  const auto ours = attention_dump(dir / "ours", true);
  const auto result = compare_dumps(ours, attention_dump(dir / "theirs", false));
  CAPTURE(to_text(result));
  CHECK(result.agrees);
  CHECK_FALSE(result.first.found);
  CHECK(has(to_json(result).dump(), "one tensor that the call received several times"));
  CHECK(compare_dumps(attention_dump(dir / "theirs", false), ours).agrees);
  const auto dropped = compare_dumps(ours, attention_dump(dir / "dropped", false, /*norm_has_gradient=*/false));
  CHECK_FALSE(dropped.agrees);
  CHECK((dropped.first.cause == Divergence::Cause::Gradient));
}
