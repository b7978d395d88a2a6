// Two networks with an optimizer each: a generator learns to make numbers that a discriminator cannot tell from those of a normal
// distribution with mean 3 and deviation 0.5.
#include <torch/nn.h>
#include <torch/types.h>

#include <cstdio>

#include <npu_train/nn/module_state.hpp>
#include <npu_train/trainer.hpp>

// Layers of a task: the optimizer NAME trains the parameters "NAME.*".
struct NetworksImpl : torch::nn::Module {
  NetworksImpl() {
    using namespace torch::nn;
    generator = register_module("generator", Sequential(Linear(4, 32), ReLU(), Linear(32, 1)));
    discriminator = register_module("discriminator", Sequential(Linear(1, 32), LeakyReLU(), Linear(32, 1)));
  }
  torch::nn::Sequential generator, discriminator;
};
TORCH_MODULE(Networks);

class Gan final : public npu_train::AlternatingTask {
 public:
  std::vector<std::string> optimizers() const override { return {"discriminator", "generator"}; }
  npu_train::StepOutput loss_of(const std::string& optimizer, const npu_train::ForwardContext& context) override {
    const auto real = context.batch().input();
    const auto made = nets_->generator->forward(torch::randn({real.size(0), 4}, real.options()));
    if (optimizer == "generator") return {judged(made, 1), context.batch().weight};
    return {judged(real, 1) + judged(made.detach(), 0), context.batch().weight};
  }
  at::Tensor predict(const at::Tensor& noise) override { return nets_->generator->forward(noise); }
  npu_train::ParameterSet parameters() override { return npu_train::parameters_of(*nets_); }
  std::vector<npu_train::NamedTensor> buffers() override { return npu_train::buffers_of(*nets_); }
  void set_training(bool on) override { nets_->train(on); }
  void to(c10::Device device) override { nets_->to(device); }

 private:
  // The loss of the discriminator's answers if all of `x` should count as real (1) or made (0).
  at::Tensor judged(const at::Tensor& x, double as) {
    const auto logits = nets_->discriminator->forward(x);
    return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, as));
  }
  Networks nets_;
};

int main() try {
  npu_train::seed_everything(1);
  const auto real = 3 + 0.5 * torch::randn({2048, 1});
  npu_train::Trainer trainer({.data = {.options = {{"batch_size", 64}}},
                              .optimizer = {"adam", {{"lr", 2e-3}, {"betas", npu_train::ConfigNode::list({0.5, 0.999})}}},
                              .optimizers = {{"generator", npu_train::part("adam", {{"lr", 1e-3}})}},
                              .trainer = {.max_epochs = 40},
                              .output = {.dir = ""}});
  const auto result = trainer.fit(std::make_shared<Gan>(), std::make_shared<npu_train::TensorDataset>(real, real));
  const auto made = trainer.predict(torch::randn({4096, 4}));
  std::printf("discriminator loss %.3f, generator loss %.3f\n", npu_train::scalar_or(result.history.back().train, "discriminator_loss", -1),
              npu_train::scalar_or(result.history.back().train, "generator_loss", -1));
  std::printf("mean %.2f, deviation %.2f\n", made.mean().item<double>(), made.std().item<double>());
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
