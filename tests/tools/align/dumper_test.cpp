#include "testing.hpp"

#include <ATen/ATen.h>

#include <torch/nn/modules.h>

#include <algorithm>
#include <filesystem>

#include "npu_train/core/log.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/tools/align/dump_reader.hpp"
#include "npu_train/tools/align/dumper.hpp"

using namespace npu_train;
using npu_train::testing::error_of, npu_train::testing::has, npu_train::testing::TempDir;
namespace fs = std::filesystem;

namespace {

struct DumperNet : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)))};
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(4))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(4, 2))};
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = in_layer("block", x, [this](const at::Tensor& t) { return norm(conv(t)).relu_(); });
    return head(y.mean({2, 3}));
  }
};

// Dumps one step into a folder of its own.
struct OneStep {
  TempDir dir;
  DumperNet net;
  at::Tensor x = at::randn({2, 3, 5, 5}), logits, loss;
  Json data;

  explicit OneStep(DumpOptions options) {
    options.dir = dir.path();
    Dumper dumper(options, dumped_model(net));
    dumper.start();
    logits = net.forward(x);
    loss = logits.square().mean();
    dumper.loss(loss);
    loss.backward();
    dumper.stop();
    dumper.step();
    data = read("dump.json").at("data", "dump.json");
  }
  fs::path folder() const { return fs::path(dir.path()) / "step0" / "rank0"; }
  Json read(const std::string& file) const { return load_json(folder() / file); }
  std::vector<std::string> calls() const {
    std::vector<std::string> out;
    for (const auto& m : data.members("data")) out.push_back(m.key);
    return out;
  }
  at::Tensor file(const std::string& name) const { return load_pth(folder() / "dump_tensor_data" / name).tensors.at(0).second; }
};

void dump_step(Dumper& dumper, DumperNet& net) {
  dumper.start();
  net.forward(at::randn({2, 3, 5, 5})).sum().backward();
  dumper.stop();
  dumper.step();
}

double number(const Json& leaf, const char* key) { return leaf.at(key, "leaf").number("leaf"); }

}  // namespace

TEST_CASE("layers are known by their parameters and declarations, in the names and order of msprobe") {
  const OneStep step({});
  CHECK((step.calls() == std::vector<std::string>{"Module.conv.Conv2d.forward.0", "Module.norm.BatchNorm2d.forward.0",
                                                  "Module.block.Layer.forward.0", "Module.head.Linear.forward.0",
                                                  "Module.loss.Loss.forward.0", "Module.head.Linear.backward.0",
                                                  "Module.block.Layer.backward.0", "Module.norm.BatchNorm2d.backward.0",
                                                  "Module.conv.Conv2d.backward.0", "Module.conv.Conv2d.parameters_grad.0",
                                                  "Module.norm.BatchNorm2d.parameters_grad.0", "Module.head.Linear.parameters_grad.0"}));
  const auto& conv = step.data.at("Module.conv.Conv2d.forward.0", "data");
  const auto& input = conv.at("input_args", "conv").items("input_args").at(0);
  CHECK(input.at("dtype", "input").text("dtype") == "torch.float32");
  CHECK(number(input, "Max") == doctest::Approx(step.x.max().item<double>()));
  CHECK(number(input, "Norm") == doctest::Approx(step.x.norm().item<double>()));
  CHECK(conv.at("parameters", "conv").find("bias") != nullptr);
  const auto construct = step.read("construct.json");
  CHECK(construct.at("Module.conv.Conv2d.forward.0", "c").text("c") == "Module.block.Layer.forward.0");
  CHECK(construct.at("Module.block.Layer.forward.0", "c").is_null());
  CHECK(construct.at("Module.conv.Conv2d.backward.0", "c").text("c") == "Module.block.Layer.backward.0");
}

TEST_CASE("tensors are those of the moment, also where the next operator changes them in place") {
  const OneStep step({.task = "tensor"});
  const auto norm = step.file("Module.norm.BatchNorm2d.forward.0.output.0.pt");
  const auto block = step.file("Module.block.Layer.forward.0.output.0.pt");
  CHECK(norm.min().item<float>() < 0);
  CHECK(at::equal(at::relu(norm), block));
  CHECK(at::equal(step.file("Module.conv.Conv2d.forward.0.input.0.pt"), step.x));
  CHECK(at::equal(step.file("Module.head.Linear.parameters_grad.0.weight.pt"), step.net.head->weight.grad()));
  // where the value is positive, the gradient before relu_ equals the gradient after it
  const auto behind = step.file("Module.block.Layer.backward.0.input.0.pt");
  const auto before = step.file("Module.norm.BatchNorm2d.backward.0.input.0.pt");
  CHECK(at::equal(behind * norm.gt(0), before));
}

TEST_CASE("operators have their own names and numbers, and under level mix the layer above them") {
  const OneStep step({.level = "mix"});
  const auto construct = step.read("construct.json");
  CHECK(construct.at("Functional.conv2d.0.forward", "c").text("c") == "Module.conv.Conv2d.forward.0");
  CHECK(construct.at("Tensor.relu_.0.forward", "c").text("c") == "Module.block.Layer.forward.0");
  const auto& relu = step.data.at("Tensor.relu_.0.forward", "data");
  CHECK(number(relu.at("input_args", "r").items("r").at(0), "Min") < 0);
  CHECK(number(relu.at("output", "r").items("r").at(0), "Min") == 0);
  CHECK(step.data.find("Functional.conv2d.0.backward") != nullptr);
  const OneStep only_ops({.level = "op"});
  for (const auto& name : only_ops.calls())
    CHECK_MESSAGE((!name.starts_with("Module.") || name.starts_with("Module.loss") || name.find("parameters_grad") != std::string::npos),
                  name);
}

TEST_CASE("data_mode, list, scope and sample choose") {
  for (const auto& name : OneStep({.data_mode = {"parameters_grad"}}).calls()) CHECK(name.find("parameters_grad") != std::string::npos);
  const OneStep inputs({.data_mode = {"forward", "input"}});
  CHECK(inputs.data.at("Module.head.Linear.forward.0", "d").find("output") == nullptr);
  CHECK(inputs.data.find("Module.head.Linear.backward.0") == nullptr);
  for (const auto& name : OneStep({.list = {"*head*"}}).calls())
    CHECK_MESSAGE((name.find("head") != std::string::npos || name.find("loss") != std::string::npos), name);
  const OneStep scope({.scope = {"norm", "head"}, .data_mode = {"forward"}});
  CHECK(scope.data.find("Module.conv.Conv2d.forward.0") == nullptr);
  CHECK(scope.data.find("Module.norm.BatchNorm2d.forward.0") != nullptr);
  CHECK(scope.data.find("Module.head.Linear.forward.0") != nullptr);
  const auto half = OneStep({.sample = 0.5, .seed = 1}).calls();
  CHECK((half == OneStep({.sample = 0.5, .seed = 1}).calls()));
  CHECK(half.size() < OneStep({}).calls().size());
}

TEST_CASE("a sample of elements is the same for equal sizes and in order") {
  const OneStep step({.task = "tensor", .sample_elements = 0.1});
  const auto& leaf = step.data.at("Module.conv.Conv2d.forward.0", "d").at("input_args", "d").items("d").at(0);
  CHECK(leaf.at("sampled", "d").integer("d") == 15);
  const auto kept = step.file("Module.conv.Conv2d.forward.0.input.0.pt");
  CHECK(kept.numel() == 15);
  const at::Tensor flat = step.x.reshape({-1});
  int64_t at = 0;  // each element is found after the one before
  for (int64_t i = 0; i < kept.numel(); ++i) {
    while (at < flat.numel() && !at::equal(flat[at], kept[i])) ++at;
    CHECK(at < flat.numel());
  }
}

TEST_CASE("level debug has the values that code names, and their gradients") {
  const TempDir dir;
  DumperNet net;
  Dumper dumper({.level = "debug", .task = "tensor", .dir = dir.path()}, dumped_model(net));
  const at::Tensor x = at::randn({2, 3, 5, 5});
  at::Tensor normed;
  dumper.start();
  const at::Tensor y = named_value("features", in_layer("block", x, [&](const at::Tensor& t) {
                                     normed = named_value("normed", net.norm(net.conv(t)));
                                     normed.retain_grad();
                                     return normed.relu();
                                   }));
  const at::Tensor loss = net.head(named_value("features", y * 2).mean({2, 3})).square().mean();
  dumper.loss(loss);
  loss.backward();
  dumper.stop();
  dumper.save("slope", net.head->weight.grad());
  dumper.step();
  const auto folder = fs::path(dir.path()) / "step0" / "rank0";
  CHECK_FALSE((fs::exists(folder / "dump.json") || fs::exists(folder / "construct.json")));
  CHECK(load_json(folder / "debug.json").at("level", "d").text("d") == "debug");
  const auto value = [&](const std::string& name) { return load_pth(folder / "dump_tensor_data" / (name + ".pt")).tensors.at(0).second; };
  CHECK(at::equal(value("block.normed.0.debug"), normed));
  CHECK(at::equal(value("block.normed_grad.0.debug"), normed.grad()));
  CHECK(at::equal(value("features.1.debug"), y * 2));
  CHECK(at::equal(value("slope.0.debug"), net.head->weight.grad()));
  std::vector<std::string> calls;
  for (const auto& call : read_dump_step(Dump::open(dir.path()).places().at(0)).calls)
    calls.push_back(call.layer + " " + call.direction + " " + std::to_string(call.number) + " " + std::to_string(call.items.size()));
  CHECK((calls == std::vector<std::string>{"block.normed forward 0 1", "features forward 0 1", "features forward 1 1",
                                           "features backward 1 1", "features backward 0 1", "block.normed backward 0 1",
                                           "slope backward 0 1"}));
}

TEST_CASE("level debug: a name twice, a second backward, a tensor that changes unseen, names that are no values") {
  const TempDir dir;
  DumperNet net;
  std::vector<std::string> told;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { told.emplace_back(text); });
  {
    Dumper dumper(
        {.level = "debug", .task = "tensor", .list = {"features", "weight", "scores_grad", "layer", "feature_x"}, .dir = dir.path()},
        dumped_model(net));
    dumper.start();
    const at::Tensor y = named_value("features", at::randn({4}).requires_grad_() * 2);
    const at::Tensor scores = named_value("scores_grad", named_value("hidden", y * 3));
    const at::Tensor same = in_layer("layer", scores, [](const at::Tensor& t) { return t; });
    const at::Tensor loss = same.sum();
    dumper.loss(loss);
    loss.backward({}, /*keep_graph=*/true);
    loss.backward();
    const auto weight = at::zeros({2});
    dumper.save("weight", weight);
    std::fill_n(weight.mutable_data_ptr<float>(), 2, 1.0F);  // like a fused optimizer, does not change the tensor's version
    dumper.save("weight", weight);
    dumper.save("features_grad", weight);
    dumper.step();
  }
  const auto step = read_dump_step(Dump::open(dir.path()).places().at(0));
  std::vector<std::string> names;
  for (const auto& call : step.calls) names.push_back(call.name + (call.items.at(0).unscaled ? " unscaled" : ""));
  CHECK((names == std::vector<std::string>{"features.0.debug", "scores_grad.0.debug", "scores_grad_grad.0.debug", "features_grad.0.debug",
                                           "weight.0.debug unscaled", "weight.1.debug unscaled", "features_grad.1.debug unscaled"}));
  const auto values = [&](const std::string& name) {
    return load_pth(fs::path(dir.path()) / "step0/rank0/dump_tensor_data" / (name + ".pt")).tensors.at(0).second;
  };
  CHECK(at::equal(values("weight.0.debug"), at::zeros({2})));
  CHECK(at::equal(values("weight.1.debug"), at::ones({2})));
  CHECK(std::any_of(told.begin(), told.end(), [](const auto& text) {
    return has(text, "'feature_x' matches no named value at dump.level=debug; did you mean 'features'?");
  }));
}

TEST_CASE("level debug refuses what only calls have") {
  DumperNet net;
  for (const auto& options : {DumpOptions{.level = "debug", .task = "overflow_check"}, DumpOptions{.level = "debug", .scope = {"a"}},
                              DumpOptions{.level = "debug", .sample = 0.5}})
    CHECK(error_of([&] { Dumper(options, dumped_model(net)); }).kind() == ErrorKind::Usage);
}

TEST_CASE("checksums instead of statistics; npy instead of pt") {
  const OneStep step({.task = "tensor", .summary = "crc32", .format = "npy"});
  const auto& leaf = step.data.at("Module.conv.Conv2d.forward.0", "d").at("input_args", "d").items("d").at(0);
  CHECK(leaf.at("md5", "d").text("d").size() == 8);
  CHECK(leaf.find("Max") == nullptr);
  CHECK(fs::exists(step.folder() / "dump_tensor_data" / leaf.at("data_name", "d").text("d")));
}

TEST_CASE("overflow_check keeps what is not finite, with its values") {
  TempDir dir;
  DumperNet net;
  {
    const at::NoGradGuard no_grad;
    net.norm->weight[0] = std::numeric_limits<float>::infinity();
  }
  Dumper dumper({.task = "overflow_check", .dir = dir.path()}, dumped_model(net));
  dump_step(dumper, net);
  const auto data = load_json_prefix(fs::path(dir.path()) / "step0/rank0/dump.json").value.at("data", "d");
  CHECK(data.members("d").front().key == "Module.norm.BatchNorm2d.forward.0");
  CHECK(data.find("Module.conv.Conv2d.forward.0") == nullptr);
  CHECK(fs::exists(fs::path(dir.path()) / "step0/rank0/dump_tensor_data/Module.norm.BatchNorm2d.forward.0.input.0.pt"));
}

TEST_CASE("only the requested steps and ranks") {
  TempDir dir;
  DumperNet net;
  const auto run = [&](DumpOptions options, int rank) {
    Dumper dumper(options, dumped_model(net), rank);
    for (int i = 0; i < 4; ++i) dump_step(dumper, net);
  };
  run({.steps = {"0", "2-3"}, .ranks = {1}, .dir = dir.path()}, 1);
  CHECK(fs::exists(fs::path(dir.path()) / "step0/rank1/dump.json"));
  CHECK_FALSE(fs::exists(fs::path(dir.path()) / "step1"));
  CHECK(fs::exists(fs::path(dir.path()) / "step3/rank1/dump.json"));
  run({.ranks = {1}, .dir = dir.path().string() + "/other"}, 0);
  CHECK_FALSE(fs::exists(dir.path().string() + "/other/step0"));
  CHECK_THROWS_WITH(run({.steps = {"3-1"}, .dir = dir.path()}, 0), doctest::Contains("ends before its start"));
  CHECK_THROWS_WITH(run({.level = "kernel", .dir = dir.path()}, 0), doctest::Contains("module, op, mix"));
}

TEST_CASE("the optimizer's step shows learning rate, weights and state") {
  TempDir dir;
  DumperNet net;
  Sgd sgd(parameters_of(net), {.lr = 0.25, .momentum = 0.9});
  Dumper dumper({.dir = dir.path()}, dumped_model(net));
  dumper.watch(sgd);
  dumper.start();
  net.forward(at::randn({2, 3, 5, 5})).sum().backward();
  dumper.stop();
  sgd.step();
  dumper.step();
  const auto data = load_json(fs::path(dir.path()) / "step0/rank0/dump.json").at("data", "d");
  const auto& step = data.at("Module.optimizer.Sgd.forward.0", "d");
  CHECK(step.at("input_kwargs", "d").at("lr", "d").at("value", "d").number("d") == 0.25);
  CHECK(number(step.at("parameters", "d").at("head.weight", "d"), "Norm") == doctest::Approx(net.head->weight.norm().item<double>()));
  CHECK(number(step.at("output", "d").at("momentum/head.weight", "d"), "Norm") ==
        doctest::Approx(net.head->weight.grad().norm().item<double>()));
}

TEST_CASE("a layer that runs twice has two calls, and statistics of each") {
  TempDir dir;
  DumperNet net;
  Dumper dumper({.dir = dir.path()}, dumped_model(net));
  dumper.start();
  const at::Tensor x = at::randn({2, 4, 5, 5}) * 3 + 1;
  net.norm(net.norm(x)).sum().backward();
  dumper.stop();
  dumper.step();
  const auto data = load_json(fs::path(dir.path()) / "step0/rank0/dump.json").at("data", "d");
  std::vector<double> means;
  for (const char* call : {"Module.norm.BatchNorm2d.forward.0", "Module.norm.BatchNorm2d.forward.1"})
    means.push_back(number(data.at(call, "d").at("parameters", "d").at("running_mean", "d"), "Norm"));
  CHECK(means[0] != means[1]);
  CHECK(means[1] == doctest::Approx(net.norm->running_mean.norm().item<double>()));
}

TEST_CASE("steps that an earlier, longer run left are gone") {
  TempDir dir;
  DumperNet net;
  const auto kept = fs::path(dir.path()) / "step1_kept/rank0";  // a copy made by the user
  for (const int steps : {3, 1}) {
    Dumper dumper({.dir = dir.path()}, dumped_model(net));
    for (int i = 0; i < steps; ++i) dump_step(dumper, net);
    if (steps == 3) fs::copy(fs::path(dir.path()) / "step1", kept.parent_path(), fs::copy_options::recursive);
  }
  CHECK(fs::exists(kept / "dump.json"));
  CHECK(fs::exists(fs::path(dir.path()) / "step0/rank0/dump.json"));
  CHECK_FALSE(fs::exists(fs::path(dir.path()) / "step1/rank0/dump.json"));
}

TEST_CASE("weights of a recurrent layer are in its entry") {
  struct Recurrent : torch::nn::Module {
    torch::nn::LSTM lstm{register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 4)))};
  } net;
  TempDir dir;
  Dumper dumper({.dir = dir.path()}, dumped_model(net));
  dumper.start();
  const auto out = std::get<0>(net.lstm(at::randn({5, 2, 3})));
  dumper.loss(out.sum());
  dumper.step();
  const auto data = load_json(fs::path(dir.path()) / "step0/rank0/dump.json").at("data", "d");
  const auto& parameters = data.at("Module.lstm.LSTM.forward.0", "d").at("parameters", "d");
  CHECK(number(parameters.at("weight_hh_l0", "d"), "Norm") ==
        doctest::Approx(net.lstm->named_parameters()["weight_hh_l0"].norm().item<double>()));
  CHECK(parameters.members("d").size() == 4);
}

TEST_CASE("a forward ends with its loss, and a step has as many as are started") {
  TempDir dir;
  DumperNet net;
  Dumper dumper({.level = "op", .dir = dir.path()}, dumped_model(net));
  for (int half = 0; half < 2; ++half) {
    dumper.start();
    const at::Tensor loss = net.forward(at::randn({2, 3, 5, 5})).square().mean();
    dumper.loss(loss);
    loss.backward();
    for (const auto& p : net.parameters()) p.grad().mul_(0.5);
    dumper.stop();
  }
  dumper.step();
  const auto data = load_json(fs::path(dir.path()) / "step0/rank0/dump.json").at("data", "d");
  for (const char* twice : {"Functional.conv2d.", "Module.loss.Loss.forward.", "Module.head.Linear.parameters_grad."})
    for (const auto& [number, there] : {std::pair("0", true), {"1", true}, {"2", false}}) {
      const std::string prefix = std::string(twice) + number;
      CAPTURE(prefix);
      bool found = false;
      for (const auto& m : data.members("d")) found |= m.key.starts_with(prefix);
      CHECK(found == there);
    }
  for (const auto& m : data.members("d")) CHECK((m.key.find("mul_") == std::string::npos && m.key.find("_backward.") == std::string::npos));
}

TEST_CASE("an empty dump is reported") {
  std::vector<std::string> told;
  const ScopedLogSink sink([&](LogLevel, std::string_view message) { told.emplace_back(message); });
  DumperNet net;
  const auto run = [&](DumpOptions options) {
    TempDir dir;
    options.dir = dir.path();
    Dumper dumper(options, dumped_model(net));
    dumper.start();
    dumper.loss(net.forward(at::randn({2, 3, 5, 5})).sum());
    dumper.step();
  };
  run({.list = {"no_such_layer"}, .data_mode = {"forward"}});
  REQUIRE(told.size() == 2);
  CHECK(has(told[0], "dump.list: 'no_such_layer' matches no layer or operator at dump.level=module; available: Module."));
  CHECK(has(told[1], "no layer or operator of step 0 was dumped"));
  run({.list = {"head*", "no_such_layer.*"}, .data_mode = {"forward"}});
  REQUIRE(told.size() == 3);
  CHECK(has(told[2], "'no_such_layer.*' matches no layer or operator"));
  run({.scope = {"head", "haed"}});
  REQUIRE(told.size() == 4);
  CHECK(has(told[3], "'haed' matches no layer or operator at dump.level=module, so the scope continues to the end; did you mean 'head'?"));
  run({.sample_elements = 0.5});
  REQUIRE(told.size() == 5);
  CHECK(has(told[4], "dump.sample_elements applies to files of values"));
  run({.steps = {"7"}});
  REQUIRE(told.size() == 6);
  CHECK(has(told[5], "dump.steps: 7 was not reached; the run had steps 0 to 0"));
}

namespace {

// A network that uses its parameters and its buffer through casts and views, like models that run under autocast.
struct CastingNet : torch::nn::Module {
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 2).stride(2)))};
  at::Tensor token = register_parameter("token", at::randn({1, 1, 4}));
  struct Scale : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", at::rand({4})), bias = register_parameter("bias", at::rand({4}));
    at::Tensor forward(const at::Tensor& x) { return (x * weight.to(x.scalar_type())).to(at::kFloat) + bias; }
  };
  std::shared_ptr<Scale> scale = register_module("scale", std::make_shared<Scale>());
  struct Positions : torch::nn::Module {
    at::Tensor table = register_buffer("table", at::randn({1, 5, 4}));
    at::Tensor weight = register_parameter("weight", at::rand({4, 4}));
    at::Tensor forward(const at::Tensor& x) { return at::matmul(at::cat({x, table.to(x.scalar_type()).expand_as(x)}, 1), weight); }
  };
  std::shared_ptr<Positions> positions = register_module("positions", std::make_shared<Positions>());

  at::Tensor forward(const at::Tensor& x) {
    const auto patches = conv(x).flatten(2).transpose(1, 2);
    return positions->forward(scale->forward(at::cat({token.to(patches.scalar_type()).expand({x.size(0), -1, -1}), patches}, 1)));
  }
};

std::vector<std::string> items_under(std::optional<at::ScalarType> dtype) {
  const TempDir dir;
  CastingNet net;
  {
    Dumper dumper({.level = "mix", .dir = dir.path()}, dumped_model(net));
    dumper.start();
    at::Tensor out;
    {
      std::optional<Autocast> region;
      if (dtype) region.emplace(Device{}, *dtype);
      out = net.forward(at::randn({2, 3, 4, 4}));
    }
    const auto loss = out.to(at::kFloat).square().mean();
    dumper.loss(loss);
    loss.backward();
    dumper.stop();
    dumper.step();
  }
  std::vector<std::string> out;
  for (const auto& call : read_dump_step(Dump::open(dir.path()).places().at(0)).calls)
    for (const auto& item : call.items) {
      std::string shape = " ";
      for (const auto n : item.shape) shape += std::to_string(n) + ",";
      if (call.is_module) out.push_back(item.name + shape);
    }
  return out;
}

}  // namespace

TEST_CASE("a layer has the same calls, inputs and parameters in every precision") {
  const auto full = items_under(std::nullopt);
  CHECK(std::count(full.begin(), full.end(), "Module.token.Parameter.forward.0.parameters.token 1,1,4,") == 1);
  CHECK(std::count(full.begin(), full.end(), "Module.token.Parameter.forward.0.input.0 2,4,4,") == 1);
  CHECK(std::count(full.begin(), full.end(), "Module.scale.Scale.forward.0.parameters.bias 4,") == 1);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto low = items_under(dtype);
    for (size_t i = 0; i < std::max(full.size(), low.size()); ++i)
      REQUIRE((i < full.size() ? full[i] : "nothing") == (i < low.size() ? low[i] : "nothing"));
  }
}

namespace {

// A network in which one value feeds two layers inside a declared layer, and a shortcut around that layer. The declared layer has its own
// parameter.
struct ForkNet : torch::nn::Module {
  struct Fork : torch::nn::Module {
    torch::nn::Linear left{register_module("left", torch::nn::Linear(4, 4))}, right{register_module("right", torch::nn::Linear(4, 4))};
    at::Tensor scale = register_parameter("scale", at::ones({4}));
  };
  torch::nn::Linear first{register_module("first", torch::nn::Linear(3, 4))};
  std::shared_ptr<Fork> fork{register_module("fork", std::make_shared<Fork>())};
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = first(x);
    return y + in_layer("fork", y, [this](const at::Tensor& t) { return fork->left(t) * fork->scale + torch::relu(fork->right(t)); });
  }
};

}  // namespace

TEST_CASE("the gradient of an input is the call's own share, as msprobe shows it") {
  const TempDir dir;
  ForkNet net;
  Dumper dumper({.task = "tensor", .dir = dir.path()}, dumped_model(net));
  dumper.start();
  const at::Tensor loss = net.forward(at::randn({5, 3})).square().sum();
  dumper.loss(loss);
  loss.backward();
  dumper.stop();
  dumper.step();
  const auto step = read_dump_step(Dump::open(dir.path()).places().at(0));
  const auto file = [&](const std::string& name) {
    return load_pth(fs::path(dir.path()) / "step0/rank0/dump_tensor_data" / (name + ".pt")).tensors.at(0).second;
  };
  const auto share = [&](const std::string& layer, const at::Tensor& weight) {
    const auto call = "Module.fork." + layer + ".Linear.backward.0";
    const at::Tensor given = file(call + ".output.0"), expected = file(call + ".input.0").mm(weight.detach());
    CHECK(at::allclose(given, expected, 1e-5, 1e-6));
    return given;
  };
  const at::Tensor left = share("left", net.fork->left->weight), right = share("right", net.fork->right->weight);
  const auto declared = [&](const char* what) {
    for (const auto& call : step.calls)
      if (call.layer == "fork" && call.direction == what) return call.name;
    return std::string("no call");
  };
  const at::Tensor of_fork = file(declared("backward") + ".output.0"), behind = file(declared("backward") + ".input.0");
  CHECK(at::allclose(of_fork, left + right, 1e-5, 1e-6));
  CHECK(at::allclose(file("Module.first.Linear.backward.0.input.0"), of_fork + behind, 1e-5, 1e-6));  // the rest belongs to the shortcut
  // the entries of a declared layer contain its own parameters and their gradients
  CHECK(at::equal(file(declared("forward") + ".parameters.scale"), net.fork->scale));
  CHECK(at::equal(file(declared("parameters_grad") + ".scale"), net.fork->scale.grad()));
}
