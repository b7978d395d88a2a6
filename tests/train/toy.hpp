// Small models and data that the tests of this room share.
#pragma once

#include <memory>
#include <vector>

#include <torch/nn.h>

#include "npu_train/base/state.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/nn/checkpointing.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/loop.hpp"
#include "npu_train/train/step.hpp"

#include "device_under_test.hpp"

namespace npu_train::testing {

/// Linear, BatchNorm, Dropout, Linear: a network with parameters, buffers and random numbers.
struct ToyNetImpl : torch::nn::Module {
  explicit ToyNetImpl(double p = 0) : dropout(p) {
    first = register_module("first", torch::nn::Linear(6, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    head = register_module("head", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(at::Tensor x) {
    const auto rest = [this](const at::Tensor& h) { return head(npu_train::dropout(torch::relu(h), dropout, is_training())); };
    const at::Tensor h = norm(first(x));
    return recompute ? checkpoint(rest, h) : rest(h);
  }
  double dropout;
  bool recompute = false;  // recomputes the dropout and what follows it in the backward pass
  torch::nn::Linear first{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(ToyNet);

inline std::shared_ptr<Dataset> toy_data(int64_t n = 40, uint64_t seed = 3) {
  torch::manual_seed(seed);
  auto x = torch::randn({n, 6});
  return std::make_shared<TensorDataset>(x, x.slice(1, 0, 4).argmax(1), 4);
}

inline Batch toy_batch(int64_t n = 8, uint64_t seed = 5) {
  const auto& device = device_under_test();
  torch::manual_seed(seed);
  return to_device(Batch(torch::randn({n, 6}), torch::randint(4, {n})), device);
}

/// Everything that a TrainStep or a TrainLoop needs, around one task.
struct Toy {
  explicit Toy(const std::string& mode = "32-true", const std::string& optimizer_name = "sgd", double dropout = 0,
               GradScalerOptions scaler = {}) {
    at::set_num_threads(1);
    const auto& device = device_under_test();  // must start before its generator is seeded
    seed_everything(11);                       // torch::manual_seed() does not reach every device
    net = ToyNet(dropout);
    task = classifier(net);
    task->to(device.c10());
    precision = make_precision({mode, scaler, {}}, device);
    auto parameters = precision->prepare(task->parameters(), {"norm.weight", "norm.bias"});
    if (optimizer_name == "sgd")
      optimizer = std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
    else
      optimizer = std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01});
  }
  void with_average(AverageOptions options) {
    average = std::make_unique<WeightAverage>(optimizer->parameters(), std::move(options), task->buffers(), task->parameters());
  }
  void with_ema() { with_average({.enabled = true, .decay = 0.9}); }

  TrainStep step(StepOptions options = {}) {
    return TrainStep(*task, *precision, *optimizer, average.get(), *strategy, observers, options);
  }

  std::unique_ptr<TrainLoop> loop(TrainerOptions options, CheckpointOptions checkpoint = {}, CheckpointStore* store = nullptr,
                                  EarlyStoppingOptions early = {}, std::shared_ptr<const Clock> clock = steady_clock()) {
    train_loader = std::make_unique<Loader>(train, Pipeline(), data);
    val_loader =
        std::make_unique<Loader>(val, Pipeline(), LoaderOptions{.batch_size = 8, .rank = data.rank, .world_size = data.world_size});
    LoopParts parts;
    parts.task = task.get();
    parts.precision = precision.get();
    parts.optimizer = optimizer.get();
    parts.schedule = &schedule;
    parts.base_lr = optimizer->lr();
    parts.average = average.get();
    parts.strategy = strategy.get();
    parts.train_loader = train_loader.get();
    parts.val_loader = val_loader.get();
    parts.store = store;
    parts.clock = std::move(clock);
    parts.device = device_under_test();
    parts.model_name = "toy";
    return std::make_unique<TrainLoop>(parts, options, checkpoint, early);
  }

  ToyNet net{nullptr};
  std::shared_ptr<Task> task;
  std::unique_ptr<Precision> precision;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightAverage> average;
  std::shared_ptr<Strategy> strategy = std::make_shared<SingleDeviceStrategy>();
  Observers observers;
  LrSchedule schedule{[](double) { return 1.0; }, true};
  LoaderOptions data{.batch_size = 8, .shuffle = true, .seed = 7};  // for the training data; the same ranks share the validation data
  std::shared_ptr<Dataset> train = toy_data(), val = toy_data(20, 4);
  std::unique_ptr<Loader> train_loader, val_loader;
};

/// Copies parameters, so that later steps do not change them.
inline std::map<std::string, at::Tensor> copy_of(const ParameterSet& parameters) {
  std::map<std::string, at::Tensor> out;
  for (const auto& p : parameters) out[p.name] = p.value.detach().clone();
  return out;
}

inline uint64_t weights(const Toy& toy) { return digest(toy.optimizer->parameters()); }

inline RunState snapshot(const TrainLoop& loop) {
  auto s = loop.state();
  for (auto& [part, content] : s)
    for (auto& [name, tensor] : content.tensors) tensor = tensor.clone();
  return s;
}

}  // namespace npu_train::testing
