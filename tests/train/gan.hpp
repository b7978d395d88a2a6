// A generator and a discriminator, for the tests of tasks with several optimizers. The target of a batch is the noise, so that nothing is
// drawn.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn.h>

#include "npu_train/nn/module_state.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::testing {

struct GanNetImpl : torch::nn::Module {
  GanNetImpl() {
    using namespace torch::nn;
    torch::manual_seed(23);
    // A bias in front of the batch norm would have a gradient of rounding errors, which Adam makes as large as any other.
    generator = register_module("generator", Sequential(torch::nn::Linear(torch::nn::LinearOptions(4, 8).bias(false)), BatchNorm1d(8),
                                                        ReLU(), torch::nn::Linear(8, 6)));
    discriminator = register_module("discriminator", Sequential(torch::nn::Linear(6, 8), ReLU(), torch::nn::Linear(8, 1)));
  }
  torch::nn::Sequential generator{nullptr}, discriminator{nullptr};
};
TORCH_MODULE(GanNet);

/// Returns the loss of one of the two networks on real samples and noise.
inline at::Tensor gan_loss(GanNet& net, const std::string& of, const at::Tensor& real, const at::Tensor& noise) {
  const auto judged = [&](const at::Tensor& x, double as) {
    const at::Tensor logits = net->discriminator->forward(x).to(at::kFloat);
    return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, as));
  };
  const at::Tensor made = net->generator->forward(noise);
  return of == "generator" ? judged(made, 1) : judged(real, 1) + judged(made.detach(), 0);
}

class GanTask final : public AlternatingTask {
 public:
  explicit GanTask(int64_t every = 1) : every_(every) {}
  std::vector<std::string> optimizers() const override { return {"discriminator", "generator"}; }
  StepOutput loss_of(const std::string& optimizer, const ForwardContext& context) override {
    const auto& batch = context.batch();
    for (const auto& p : parameters())
      if (p.value.requires_grad()) trained += p.name.starts_with(optimizer + ".") ? "" : optimizer + " trains " + p.name + "; ";
    return {gan_loss(net, optimizer, batch.input(), batch.target().to(batch.input().scalar_type())), batch.weight};
  }
  int64_t every(const std::string& optimizer) const override { return optimizer == "generator" ? every_ : 1; }
  at::Tensor predict(const at::Tensor& input) override { return net->generator->forward(input); }
  ParameterSet parameters() override { return parameters_of(*net); }
  std::vector<NamedTensor> buffers() override { return buffers_of(*net); }
  std::vector<std::string> norm_parameters() override { return norm_parameters_of(*net); }
  void set_training(bool on) override { net->train(on); }
  void to(c10::Device device) override { net->to(device); }

  GanNet net;
  std::string trained;  ///< parameters that required a gradient in the step of another optimizer

 private:
  int64_t every_;
};

}  // namespace npu_train::testing
