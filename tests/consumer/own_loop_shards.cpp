// The third way on several processes that divide gradients and optimizer state among themselves. Started alone it trains in one process.
#include <torch/nn.h>
#include <npu_train/base/state.hpp>
#include <npu_train/nn/module_state.hpp>
#include <npu_train/optim/optimizers.hpp>
#include <npu_train/train/distributed_training.hpp>
#include <npu_train/trainer.hpp>

#include <cstdio>
#include <filesystem>

int main(int argc, char** argv) try {
  npu_train::seed_everything(1);
  at::set_num_threads(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::nn::MSELoss loss_fn;
  const auto all = torch::rand({256, 2});
  const auto group = npu_train::ProcessGroup::from_environment();
  const auto x = all.chunk(group->size())[static_cast<size_t>(group->rank())];
  const auto y = x.prod(1, true);
  const double first = loss_fn(model->forward(x), y).item<double>();
  const std::string checkpoint = argc > 1 ? argv[1] : "";

  const auto adamw = [](const npu_train::ParameterSet& updated) {  // slices of the parameters, with state of their size
    return std::make_unique<npu_train::AdamW>(updated, npu_train::AdamWOptions{.lr = 0.01});
  };
  npu_train::DistributedTraining training(*model, group, adamw, {.strategy = "zero2", .clip_norm = 1});
  if (!checkpoint.empty() && std::filesystem::exists(checkpoint)) training.load(checkpoint);
  while (training.global_step() < 200) {
    training.begin_window(1);
    training.backward(loss_fn(model->forward(x), y) / group->size());
    training.step();  // every rank has all parameters again
  }
  if (!checkpoint.empty()) training.save(checkpoint);

  const double last = loss_fn(model->forward(x), y).item<double>();
  const auto weights = static_cast<double>(npu_train::digest(npu_train::parameters_of(*model)) >> 12);
  bool equal = true;
  for (const auto& of_rank : group->gather("weights", std::vector<double>{weights})) equal &= of_rank[0] == weights;
  std::printf("rank %d of %d: loss %g -> %g\n", group->rank(), group->size(), first, last);
  return equal && last < 0.2 * first ? 0 : 1;
} catch (const npu_train::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
