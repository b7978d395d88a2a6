// A loop of one's own in which each process updates complete parameters of its own. Started alone it trains in one process.
#include <torch/nn.h>
#include <npu_train/base/state.hpp>
#include <npu_train/dist/gradient_sharding.hpp>
#include <npu_train/nn/module_state.hpp>
#include <npu_train/optim/optimizers.hpp>
#include <npu_train/trainer.hpp>

#include <cstdio>

int main() try {
  npu_train::seed_everything(1);
  at::set_num_threads(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::nn::MSELoss loss_fn;
  const auto all = torch::rand({256, 2});
  const auto group = npu_train::ProcessGroup::from_environment();
  const auto x = all.chunk(group->size())[static_cast<size_t>(group->rank())];
  const auto y = x.prod(1, true);
  const double first = loss_fn(model->forward(x), y).item<double>();
  npu_train::AdamW optimizer(npu_train::parameters_of(*model), {.lr = 0.01});

  npu_train::GradientSharding sharding(*model, /*num_shards=*/8, "layer", group);
  sharding.apply_sharding(optimizer);  // this rank's parameters, with the options of their groups
  for (int step = 0; step < 200; ++step) {
    model->zero_grad();
    (loss_fn(model->forward(x), y) / group->size()).backward();
    sharding.shard_gradients();  // sums over ranks; those of other ranks' parameters are released
    optimizer.step();
    sharding.gather_parameters();  // every rank has all parameters again
  }

  const double last = loss_fn(model->forward(x), y).item<double>();
  const auto weights = static_cast<double>(npu_train::digest(npu_train::parameters_of(*model)) >> 12);
  bool equal = true;
  for (const auto& of_rank : group->gather("weights", std::vector<double>{weights})) equal &= of_rank[0] == weights;
  std::printf("rank %d of %d: loss %g -> %g, updates %zu parameters\n", group->rank(), group->size(), first, last,
              optimizer.parameters().size());
  return equal && last < 0.2 * first && optimizer.parameters().size() == 4 / static_cast<size_t>(group->size()) ? 0 : 1;
} catch (const npu_train::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
