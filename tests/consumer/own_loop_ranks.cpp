// The third way on several processes: gradients are summed over all of them. Started alone it trains in one process, with the same bits.
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <npu_train/base/state.hpp>
#include <npu_train/nn/module_state.hpp>
#include <npu_train/trainer.hpp>

#include <cstdio>

int main() try {
  npu_train::seed_everything(1);
  at::set_num_threads(1);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::nn::MSELoss loss_fn;
  const auto x = torch::rand({256, 2});
  const auto y = x.prod(1, true);
  double first = 0, last = 0;

  const auto group = npu_train::ProcessGroup::from_environment();  // torchrun, Slurm, MPI, scripts/launch, or this process alone
  npu_train::GradientReducer reducer(npu_train::parameters_of(*model), group, {.reduce = "micro_batch"});
  npu_train::DistributedSampler sampler({.size = 256, .batch_size = 64, .rank = group->rank(), .world_size = group->size()});
  for (int epoch = 0; epoch < 100; ++epoch) {
    sampler.set_epoch(epoch);
    reducer.begin_window(sampler.rounds_on_rank());
    double sum = 0;
    for (int64_t round = 0; round < sampler.rounds_on_rank(); ++round) {
      const auto samples = torch::tensor(sampler.indices(round));
      reducer.begin_backward(/*last=*/round + 1 == sampler.rounds_on_rank());
      const auto loss = loss_fn(model->forward(x.index_select(0, samples)), y.index_select(0, samples)) / sampler.batches();
      loss.backward();  // complete buckets are sent while it runs
      sum += loss.item<double>();
    }
    last = reducer.finish({sum})[0];  // every rank has the sums of gradients, and of the numbers given here
    optimizer.step();
    optimizer.zero_grad();

    if (epoch == 0) first = last;
  }
  const auto weights = npu_train::digest(npu_train::parameters_of(*model));
  if (group->rank() == 0) std::printf("loss %g -> %g, weights %016llx\n", first, last, static_cast<unsigned long long>(weights));
  return last < 0.2 * first ? 0 : 1;
} catch (const npu_train::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
