// Changes that callbacks may make during a run: the learning rate, and which parameters are trained. Also parameters with two names.
#include "testing.hpp"

#include <algorithm>

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "npu_train/base/state.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    torch::manual_seed(3);
    backbone = register_module("backbone", torch::nn::Linear(8, 16));
    head = register_module("head", torch::nn::Linear(16, 2));
  }
  at::Tensor forward(at::Tensor x) { return head(torch::relu(backbone(x))); }
  void freeze(bool frozen) {
    for (auto& p : backbone->parameters()) p.set_requires_grad(!frozen);
  }
  torch::nn::Linear backbone{nullptr}, head{nullptr};
};
TORCH_MODULE(TwoLayers);

std::shared_ptr<TensorDataset> rows() {
  torch::manual_seed(4);
  const auto x = torch::randn({64, 8});
  return std::make_shared<TensorDataset>(x, (x.sum(1) > 0).to(torch::kLong));
}

RunConfig plain_run(int64_t epochs = 3) {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.data.options = {{"batch_size", 16}, {"shuffle", false}, {"num_workers", "0"}};
  c.optimizer = {"sgd", {{"lr", 0.1}, {"momentum", 0.9}}};
  c.trainer = {.max_epochs = epochs, .num_sanity_val_steps = 0, .threads = 1};
  c.output.dir = "";
  return c;
}

/// Calls `fn` at the start of epoch `epoch`.
struct AtEpoch : Callback {
  AtEpoch(int64_t e, std::function<void(TrainLoop&)> f) : epoch(e), fn(std::move(f)) {}
  void on_epoch_start(TrainLoop& loop, int64_t now) override {
    if (now == epoch) fn(loop);
  }
  int64_t epoch;
  std::function<void(TrainLoop&)> fn;
};

std::vector<double> rates(const RunResult& result) {
  std::vector<double> out;
  for (const auto& e : result.history) out.push_back(e.lr);
  return out;
}

std::vector<std::string> warnings_of(const std::function<void()>& fn) {
  std::vector<std::string> out;
  {
    const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
      if (level == LogLevel::Warning) out.emplace_back(text);
    });
    fn();
  }
  return out;
}

size_t count_of(const std::vector<std::string>& lines, const std::string& words) {
  return static_cast<size_t>(std::count_if(lines.begin(), lines.end(), [&](const auto& line) { return has(line, words); }));
}

/// Trains with torch's own optimizer on the same batches; the backbone is trained from epoch `thawed` on.
std::vector<at::Tensor> reference_weights(int64_t epochs, int64_t thawed) {
  TwoLayers net;
  torch::optim::SGD sgd(net->head->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  net->freeze(true);
  const auto data = rows();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    if (epoch == thawed) {
      net->freeze(false);
      auto options = std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.1).momentum(0.9));
      sgd.add_param_group(torch::optim::OptimizerParamGroup(net->backbone->parameters(), std::move(options)));
    }
    for (int64_t i = 0; i < 64; i += 16) {
      sgd.zero_grad();
      torch::nn::functional::cross_entropy(net(data->inputs().slice(0, i, i + 16)), data->targets().slice(0, i, i + 16)).backward();
      sgd.step();
    }
  }
  return net->parameters();
}

/// Returns the largest difference over all parameters.
double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) out = std::max(out, (a[i] - b[i]).abs().max().item<double>());
  return out;
}

}  // namespace

TEST_CASE("a factor that a callback sets holds, and comes back with a checkpoint") {
  const TempDir dir;
  auto c = plain_run();
  c.output = {.dir = dir.path().string(), .name = "run"};
  c.lr_scheduler = {"step", {{"step_size", 2}, {"gamma", 0.5}}};
  TwoLayers net;
  Trainer trainer(c);
  trainer.add_callback(std::make_shared<AtEpoch>(1, [](TrainLoop& loop) { loop.set_lr_factor(loop.lr_factor() * 0.1); }));
  const auto lr = rates(trainer.fit(classifier(net), rows()));
  REQUIRE(lr.size() == 3);
  for (const auto& [epoch, expected] : {std::pair(0, 0.1), std::pair(1, 0.01), std::pair(2, 0.005)})
    CHECK(lr[epoch] == doctest::Approx(expected).epsilon(1e-12));
  c.trainer.max_epochs = 4;
  Trainer later(c);
  later.setup(classifier(TwoLayers()), rows());
  later.resume("last");
  CHECK(later.loop().lr_factor() == doctest::Approx(0.1));
  CHECK(rates(later.fit()).at(0) == doctest::Approx(0.005));
  for (const double bad : {-1.0, kNaN, kInf}) CHECK(error_of([&] { later.loop().set_lr_factor(bad); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a rate that the schedule takes back is not taken back in silence") {
  const auto fit = [](std::function<void(TrainLoop&)> change) {
    Trainer trainer(plain_run());
    trainer.add_callback(std::make_shared<AtEpoch>(1, std::move(change)));
    trainer.fit(classifier(TwoLayers()), rows());
  };
  const auto said = warnings_of([&] { fit([](TrainLoop& loop) { loop.parts().optimizer->set_lr(0.01); }); });
  CHECK(count_of(said, "set to 0.01, but the schedule sets it at every step; hint: TrainLoop::set_lr_factor()") == 1);
  CHECK(count_of(warnings_of([&] { fit([](TrainLoop& loop) { loop.set_lr_factor(0.1); }); }), "learning rate") == 0);
}

TEST_CASE("one_cycle says when optimizer.lr has no effect") {
  const auto said = [](double lr, double max_lr) {
    auto c = plain_run(1);
    c.optimizer = {"sgd", {{"lr", lr}}};
    c.lr_scheduler = {"one_cycle", {{"max_lr", max_lr}}};
    return count_of(warnings_of([&] { Trainer(c).fit(classifier(TwoLayers()), rows()); }), "optimizer.lr has no effect");
  };
  CHECK(said(0.1, 0.02) == 1);
  CHECK(said(0.1, 0.1) == 0);
  CHECK(said(0.1, 0) == 0);
}

TEST_CASE("what is thawed during a run is trained after refresh_parameters, as torch does it") {
  for (const bool refresh : {true, false}) {
    CAPTURE(refresh);
    TwoLayers net;
    net->freeze(true);
    const auto before = net->backbone->weight.detach().clone();
    const auto said = warnings_of([&] {
      Trainer trainer(plain_run());
      trainer.add_callback(std::make_shared<AtEpoch>(1, [&](TrainLoop& loop) {
        net->freeze(false);
        if (refresh) loop.refresh_parameters();
      }));
      trainer.fit(classifier(net), rows());
    });
    const bool moved = !at::equal(net->backbone->weight.detach(), before);
    CHECK(moved == refresh);
    CHECK(count_of(said, "2 parameters require a gradient and are not trained (backbone.weight, backbone.bias)") == (refresh ? 0 : 1));
    if (refresh) CHECK(distance(net->parameters(), reference_weights(3, 1)) < 1e-5);
  }
}

TEST_CASE("a run that was thawed continues from its checkpoints bit for bit, in every precision") {
  for (const char* precision : {"32-true", "bf16-true"}) {
    CAPTURE(precision);
    const auto run = [&](int64_t epochs, const std::filesystem::path& dir, bool resume) {
      auto c = plain_run(epochs);
      c.precision = precision;
      c.cpu_low_precision = "native";
      c.optimizer = {"adamw", {{"lr", 0.01}}};
      c.average = {.enabled = true, .decay = 0.9};
      c.output = {.dir = dir.string(), .name = "run"};
      c.checkpoint.async = false;
      TwoLayers net;
      net->freeze(true);
      Trainer trainer(c);
      if (!resume)
        trainer.add_callback(std::make_shared<AtEpoch>(1, [&](TrainLoop& loop) {
          net->freeze(false);
          loop.refresh_parameters();
        }));
      trainer.setup(classifier(net), rows());
      if (resume) trainer.resume("last");
      trainer.fit();
      const auto state = trainer.state();
      std::vector<uint64_t> bits;
      for (const char* part : {"model", "optimizer", "ema"})
        for (const auto& [name, tensor] : state.at(part).tensors) bits.push_back(digest(tensor));
      return bits;
    };
    const TempDir whole, parts;
    run(2, parts.path(), false);
    const auto expected = run(4, whole.path(), false);
    CHECK(run(4, parts.path(), true) == expected);
  }
}

TEST_CASE("a state from before a thaw freezes again") {
  TwoLayers net;
  net->freeze(true);
  Trainer trainer(plain_run(1));
  trainer.fit(classifier(net), rows());
  const auto before = trainer.state();
  net->freeze(false);
  trainer.loop().refresh_parameters();
  CHECK(trainer.loop().parts().optimizer->parameters().size() == 4);
  trainer.load_state(before);
  CHECK(trainer.loop().parts().optimizer->parameters().size() == 2);
  CHECK_FALSE(net->backbone->weight.requires_grad());
  for (auto& p : net->parameters()) p.set_requires_grad(false);
  CHECK(error_of([&] { trainer.loop().refresh_parameters(); }).kind() == ErrorKind::Usage);
}

namespace {

/// Computes y = W^T W x, in which W has two names, as the input and output embeddings of a language model.
class TiedTask final : public Task {
 public:
  TiedTask() {
    torch::manual_seed(5);
    weight = torch::randn({8, 8}).mul_(0.3).requires_grad_(true);
  }
  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    const auto y = predict(batch.input()).to(at::kFloat);
    return {torch::mse_loss(y, batch.target()), batch.weight, y};
  }
  at::Tensor predict(const at::Tensor& x) override { return x.matmul(weight.t()).matmul(weight); }
  ParameterSet parameters() override {
    ParameterSet out;
    out.add({.name = "embed.weight", .value = weight});
    out.add({.name = "head.weight", .value = weight});
    return out;
  }
  void set_training(bool) override {}
  void to(c10::Device device) override { weight.set_data(weight.detach().to(device)); }
  at::Tensor weight;
};

struct UntiedImpl : torch::nn::Module {
  at::Tensor embed = register_module("embed", torch::nn::Linear(torch::nn::LinearOptions(8, 8).bias(false)))->weight;
  at::Tensor head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(8, 8).bias(false)))->weight;
};

}  // namespace

TEST_CASE("a tensor under two names is stepped once, saved with an alias and comes back tied") {
  torch::manual_seed(6);
  const auto x = torch::randn({32, 8}), y = torch::randn({32, 8});
  const auto data = std::make_shared<TensorDataset>(x, y);
  const TempDir dir;
  auto c = plain_run(2);
  c.output = {.dir = dir.path().string(), .name = "run"};
  const auto task = std::make_shared<TiedTask>();
  Trainer trainer(c);
  const auto result = trainer.fit(task, data);

  const auto expected = TiedTask().weight;
  torch::optim::SGD sgd({expected}, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t i = 0; i < 32; i += 16) {
      sgd.zero_grad();
      torch::mse_loss(x.slice(0, i, i + 16).matmul(expected.t()).matmul(expected), y.slice(0, i, i + 16)).backward();
      sgd.step();
    }
  CHECK(distance({task->weight.detach()}, {expected.detach()}) < 1e-5);

  const auto state = load_checkpoint(result.last_checkpoint);
  CHECK(state.at("model").tensors.size() == 1);
  CHECK(aliases_of(state.at("model")) == std::map<std::string, std::string>{{"head.weight", "embed.weight"}});
  CHECK(state.at("optimizer").tensors.size() == 1);
  const SafetensorsFile file(std::filesystem::path(result.last_checkpoint) / "model.safetensors");
  CHECK(file.metadata().at("head.weight") == "embed.weight");  // the format of safetensors.torch.save_model

  c.trainer.max_epochs = 3;
  const auto again = std::make_shared<TiedTask>();
  Trainer later(c);
  later.setup(again, data);
  later.resume("last");
  CHECK(at::equal(again->weight, task->weight));
  later.fit();
  CHECK(again->parameters()[0].value.is_same(again->weight));

  UntiedImpl untied;  // a network of another program, with two tensors
  const auto report = load_weights(untied, tensors_by_every_name(state.at("model")));
  CHECK(report.complete());
  CHECK(at::equal(untied.head, untied.embed));
  CHECK(at::equal(untied.head, task->weight));
}

TEST_CASE("a checkpoint that holds the state of a tied tensor under both names continues with that of the first") {
  const auto data = std::make_shared<TensorDataset>(torch::ones({32, 8}), torch::zeros({32, 8}));
  for (const char* precision : {"32-true", "bf16-true"})
    for (const bool differ : {false, true}) {
      CAPTURE(precision);
      CAPTURE(differ);
      const TempDir dir;
      auto c = plain_run(1);
      c.precision = precision;
      c.average.enabled = true;
      c.output = {.dir = dir.path().string(), .name = "run"};
      const auto result = Trainer(c).fit(std::make_shared<TiedTask>(), data);

      auto old = load_checkpoint(result.last_checkpoint);
      old.at("model").values.erase(std::string(kAliasKey) + "head.weight");
      for (const char* part : {"model", "optimizer", "ema"}) {
        auto& tensors = old.at(part).tensors;
        const auto now = tensors;
        for (const auto& [key, tensor] : now) {
          const auto at = key.find("embed.weight");
          if (at == std::string::npos) continue;
          const bool moved = differ && std::string(part) != "model";
          tensors.emplace(key.substr(0, at) + "head.weight", moved ? tensor + 1 : tensor.clone());
        }
        CHECK(tensors.size() == 2 * now.size());
      }
      const auto folder = (dir / "old").string();
      save_checkpoint(folder, old, read_checkpoint_meta(result.last_checkpoint), ConfigNode::map());

      std::string said;
      const ScopedLogSink sink([&](LogLevel level, std::string_view message) {
        if (level == LogLevel::Warning) said += std::string(message) + "\n";
      });
      Trainer later(c);
      later.setup(std::make_shared<TiedTask>(), data);
      later.resume(folder);
      const auto now = later.state(), before = load_checkpoint(result.last_checkpoint);
      for (const char* part : {"model", "optimizer", "ema"}) {
        REQUIRE(now.at(part).tensors.size() == before.at(part).tensors.size());
        for (const auto& [key, tensor] : before.at(part).tensors) CHECK(at::equal(now.at(part).tensors.at(key), tensor));
      }
      const std::string kept = "different entries for one tensor under two names; kept are those of embed.weight (not head.weight)";
      CHECK_MESSAGE(has(said, "optimizer sgd: the saved state has " + kept) == differ, said);
      CHECK_MESSAGE(has(said, "ema: the saved state has " + kept) == differ, said);
    }
}

TEST_CASE("a file that holds a tied tensor under one of its names is complete") {
  struct Tied : torch::nn::Module {
    at::Tensor embed = register_parameter("embed", torch::zeros({4, 4}));
    at::Tensor head = register_parameter("head", embed);
  } net;
  const auto report = load_weights(net, {{"embed", torch::ones({4, 4})}});
  CHECK(report.complete());
  CHECK(at::equal(net.head.detach(), torch::ones({4, 4})));
}
