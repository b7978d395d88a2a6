// The third way: a loop of your own, with the parts that libtorch lacks.
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <npu_train/trainer.hpp>

#include <cstdio>

int main() {
  npu_train::seed_everything(1);
  const npu_train::Device device = npu_train::resolve_device("auto");
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  model->to(device.c10());
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::nn::MSELoss loss_fn;
  const auto x = torch::rand({256, 2}, device.c10());
  const auto y = x.prod(1, true);

  npu_train::GradScaler scaler;  // behaves as torch.amp.GradScaler; floor and cap are options
  double first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    torch::Tensor loss;
    {
      npu_train::Autocast autocast(device, torch::kHalf);
      loss = loss_fn(model->forward(x), y);
    }
    optimizer.zero_grad();
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    npu_train::clip_grad_norm_(model->parameters(), 1.0);
    scaler.step(optimizer);  // skipped, and counted, on overflow
    scaler.update();

    last = loss.item<double>();
    if (step == 0) first = last;
  }
  std::printf("loss %g -> %g, scale %g\n", first, last, scaler.get_scale());
  return last < 0.2 * first ? 0 : 1;
}
