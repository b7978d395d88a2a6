#include "testing.hpp"

#include <ATen/ATen.h>

#include <torch/nn/modules.h>

#include "npu_train/align/compare.hpp"
#include "npu_train/align/dumper.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/named_state.hpp"
#include "npu_train/optim/sgd.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;
using Cause = Divergence::Cause;

namespace {

struct CompareNet : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(6, 6))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(6, 6))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(6, 3))};
  double eps = 1e-5;
  bool clamp_second = false, bf16_second = false;
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = at::layer_norm(first(x), {6}, norm->weight, norm->bias, eps);
    if (bf16_second) {
      y = at::linear(y.to(at::kBFloat16), second->weight.to(at::kBFloat16), second->bias.to(at::kBFloat16)).to(at::kFloat);
    } else {
      y = at::linear(y, second->weight, second->bias);
    }
    return head(at::gelu(y));
  }
};

// What goes wrong in one run.
struct Fault {
  std::function<void(CompareNet&)> in_net{};
  std::function<void(CompareNet&)> in_gradients{};
  double lr = 0.1, input = 1, loss = 1;
  std::map<std::string, std::string> facts{};
};

class Runs {
 public:
  std::string run(const std::string& name, const Fault& fault = {}, DumpOptions options = {.task = "tensor"}) {
    at::manual_seed(3);
    CompareNet net;
    if (fault.in_net) fault.in_net(net);
    const at::Tensor x = at::randn({8, 6}) * fault.input;
    Sgd sgd(parameters_of(net), {.lr = fault.lr});
    options.dir = (dir_ / name).string();
    Dumper dumper(options, dumped_model(net), 0, fault.facts);
    dumper.watch(sgd);
    for (int step = 0; step < 2; ++step) {
      sgd.zero_grad();
      dumper.start();
      const at::Tensor loss = net.forward(x).square().mean() * fault.loss;
      dumper.loss(loss);
      loss.backward();
      if (fault.in_gradients) fault.in_gradients(net);
      dumper.stop();
      sgd.step();
      dumper.step();
    }
    return options.dir;
  }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

// Facts of another device: rounding is expected.
const std::map<std::string, std::string> kElsewhere = {{"device", "npu:0"}};

DumpComparison with_fault(const Fault& fault, const DumpOptions& options = {.task = "tensor"}, const CompareOptions& how = {}) {
  Runs runs;
  return compare_dumps(runs.run("a", fault, options), runs.run("b", {}, options), how);
}

}  // namespace

TEST_CASE("equal runs agree, value by value") {
  for (const auto* task : {"tensor", "statistics"}) {
    const auto result = with_fault({}, {.task = task});
    CHECK(result.agrees);
    CHECK_FALSE(result.first.found);
    CHECK(result.steps.size() == 2);
    CHECK(result.steps[0].compared > 30);
    CHECK((result.bytes > 0) == (std::string(task) == "tensor"));
  }
}

TEST_CASE("the layer that began it is named, not those behind it") {
  const auto transpose = [](CompareNet& net) {
    const at::NoGradGuard no_grad;
    net.second->weight.copy_(net.second->weight.t().clone());
  };
  for (const auto* task : {"tensor", "statistics"}) {
    CAPTURE(task);
    auto result = with_fault({.in_net = transpose, .facts = kElsewhere}, {.task = task});
    CHECK_FALSE(result.agrees);
    CHECK(result.first.layer == "second");
    CHECK(result.first.step == 0);
  }
  const auto result = with_fault({.in_net = transpose});
  CHECK((result.first.cause == Cause::Weights));
  CHECK(has(result.first.likely.at(0), "transposed"));

  const auto eps = with_fault({.in_net = [](CompareNet& net) { net.eps = 1e-2; }, .facts = kElsewhere});
  CHECK(eps.first.layer == "norm");
  CHECK((eps.first.cause == Cause::Layer));
  CHECK(has(eps.first.likely.at(0), "eps"));
  const auto bf16 = with_fault({.in_net = [](CompareNet& net) { net.bf16_second = true; }, .facts = kElsewhere});
  CHECK(bf16.first.layer == "second");
}

TEST_CASE("other data, dropped gradients and another learning rate have causes of their own") {
  const auto data = with_fault({.input = 1.01});
  CHECK((data.first.cause == Cause::Input));
  CHECK(data.first.layer == "first");
  const auto dropped = with_fault({.in_gradients = [](CompareNet& net) { net.norm->weight.mutable_grad().zero_(); }});
  CHECK((dropped.first.cause == Cause::Gradient));
  CHECK(dropped.first.layer == "norm");
  CHECK(has(dropped.first.likely.at(0), "zero on one side"));
  const auto lr = with_fault({.lr = 0.11});
  CHECK((lr.first.cause == Cause::Optimizer));
  CHECK(has(lr.first.likely.at(0), "learning rate"));
}

TEST_CASE("small gradients cannot hide behind the absolute tolerance") {
  Runs runs;
  const auto scaled = [](CompareNet& net) { net.first->weight.mutable_grad().mul_(1.05); };
  const auto result = compare_dumps(runs.run("a", {.in_gradients = scaled, .loss = 1e-5}), runs.run("b", {.loss = 1e-5}));
  CHECK_FALSE(result.agrees);
  CHECK(result.first.layer == "first");
  CHECK_FALSE(result.first.within_tolerance);
}

TEST_CASE("what cannot be compared is listed with its cause, and the rest goes on") {
  Runs runs;
  const auto a = runs.run("a"), b = runs.run("b");
  write_file_atomic(b + "/step0/rank0/dump_tensor_data/Module.norm.LayerNorm.forward.0.output.0.pt", "broken");
  auto result = compare_dumps(a, b);
  CHECK_FALSE(result.agrees);
  bool told = false;
  for (const auto& call : result.steps[0].calls)
    for (const auto& item : call.items)
      if (item.failed) told |= has(item.message, "Module.norm.LayerNorm.forward.0.output.0.pt");
  CHECK(told);
  CHECK(result.steps[0].compared > 30);
  std::filesystem::remove_all(b + "/step1");
  result = compare_dumps(a, b);
  CHECK(has(result.notes.at(0), "only A has step 1"));
  const auto only = runs.run("only", {}, {.task = "tensor", .list = {"first"}});
  result = compare_dumps(a, only);
  CHECK(result.agrees);
  CHECK(result.steps[0].one_sided > 0);
  CHECK(has(error_of([&] { compare_dumps(a, runs.run("none", {}, {.list = {"nothing"}, .data_mode = {"parameters_grad"}})); }).what(),
            "no value"));
}

TEST_CASE("values that cannot be read do not agree") {
  Runs runs;
  const DumpOptions how{.task = "tensor", .summary = "crc32"};
  const auto a = runs.run("a", {}, how), b = runs.run("b", {}, how);
  CHECK(compare_dumps(a, b).agrees);
  std::filesystem::remove(b + "/step0/rank0/dump_tensor_data/Module.norm.LayerNorm.forward.0.output.0.pt");
  const auto result = compare_dumps(a, b);
  CHECK_FALSE(result.agrees);
  CHECK_FALSE(result.complete);
}

TEST_CASE("a part that agrees is not called complete") {
  const auto result = with_fault({}, {.task = "tensor"}, {.sample = 0.5, .seed = 1});
  CHECK(result.sampled);
  CHECK(result.steps[0].skipped > 0);
  CHECK(with_fault({}, {.task = "tensor"}, {.layers = "last"}).sampled);
  CHECK(with_fault({}, {.task = "tensor"}, {.layers = "sensitive"}).steps[0].compared > 0);
}

TEST_CASE("a mapping and order pair other names") {
  Runs runs;
  const auto a = runs.run("a"), b = runs.run("b");
  const auto path = std::filesystem::path(b) / "step0/rank0/dump.json";
  auto text = read_file(path, 1 << 24);
  for (size_t at = 0; (at = text.find("Module.second.Linear", at)) != std::string::npos; at += 5)
    text.replace(at, 20, "Module.blocks1.Linear");
  write_file_atomic(path, text);
  std::filesystem::remove_all(a + "/step1");
  const auto strict = compare_dumps(a, b, {.fuzzy = false});
  CHECK(strict.steps[0].one_sided >= 4);
  for (const auto& how : {CompareOptions{}, CompareOptions{.fuzzy = false, .mapping = {{"second", "blocks1"}}}}) {
    const auto result = compare_dumps(a, b, how);
    CHECK(result.steps[0].one_sided == 0);
  }
}

TEST_CASE("with a reference only errors out of proportion fail") {
  Runs runs;
  // B rounds its input a little, A rounds as much elsewhere: neither is at fault
  const auto reference = runs.run("r");
  const auto b = runs.run("b", {.input = 1.01, .facts = kElsewhere});
  const auto a = runs.run("a", {.input = 0.99, .facts = kElsewhere});
  CHECK_FALSE(compare_dumps(a, b).agrees);
  CompareOptions how;
  how.reference = reference;
  how.proportion = 4;
  const auto fair = compare_dumps(a, b, how);
  CHECK(fair.steps[0].failed < compare_dumps(a, b).steps[0].failed);
  const auto bad = runs.run("bad", {.input = 1.3, .facts = kElsewhere});
  CHECK_FALSE(compare_dumps(bad, b, how).agrees);
}

TEST_CASE("NaN everywhere on both sides agrees; on one side it is found") {
  const auto nan = [](CompareNet& net) {
    const at::NoGradGuard no_grad;
    net.norm->weight.fill_(std::numeric_limits<float>::quiet_NaN());
  };
  Runs runs;
  CHECK(compare_dumps(runs.run("a", {.in_net = nan}), runs.run("b", {.in_net = nan})).agrees);
  const auto one = with_fault({.in_net = nan});
  CHECK_FALSE(one.agrees);
  CHECK(one.first.layer == "norm");
}

TEST_CASE("steps that were chosen are a part") {
  CHECK(with_fault({}, {.task = "tensor"}, {.steps = {0}}).sampled);
  CHECK_FALSE(with_fault({}, {.task = "tensor"}, {.steps = {0, 1}}).sampled);
}
