// The third way on several processes that divide gradients and optimizer state among themselves. Started alone it trains in one process.
#include <torch/nn.h>
#include <npu_train/base/digest.hpp>
#include <npu_train/nn/named_state.hpp>
#include <npu_train/optim/adamw.hpp>
#include <npu_train/optim/clip.hpp>
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

  npu_train::GradientReducer reducer(npu_train::parameters_of(*model), group, {}, npu_train::Sharding::Gradients);
  npu_train::AdamW optimizer(reducer.own(), {.lr = 0.01});  // slices of the parameters, with state of their size
  for (int step = 0; step < 200; ++step) {
    reducer.begin_backward(/*last=*/true);
    (loss_fn(model->forward(x), y) / group->size()).backward();
    reducer.finish();  // sets the gradients of the slices
    npu_train::clip_grad_norm_(reducer.own(), 1.0, 2, [&](at::Tensor& squares) { reducer.add_over_ranks(squares); });
    optimizer.step();
    optimizer.zero_grad();
    reducer.gather_parameters();  // every rank has all parameters again
  }

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
