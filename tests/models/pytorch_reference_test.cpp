// Comparison with plain PyTorch: scripts/pytorch_reference.py has computed the numbers in tests/fixtures; both sides get their weights from
// a formula.
#include "testing.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "npu_train/models/resnet.hpp"
#include "npu_train/models/vit.hpp"
#include "npu_train/nn/module_state.hpp"
#include "reference/formula.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }

 private:
  int before_;
};

at::Tensor loss_of(const Model& model, const nlohmann::json& f, int64_t step, int64_t side) {
  const auto x = formula_images("pictures." + std::to_string(step), f["batch"], side);
  return at::cross_entropy_loss(model.forward(x), formula_labels(f["batch"], f["classes"], step));
}

double relative(double got, double expected) { return std::abs(got - expected) / std::abs(expected); }

void check_losses(const Model& model, torch::optim::Optimizer& optimizer, const nlohmann::json& f) {
  double worst = 0;
  for (size_t step = 0; step < f["losses"].size(); ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model, f, static_cast<int64_t>(step), f["side"]);
    loss.backward();
    optimizer.step();
    const double apart = relative(loss.item<double>(), f["losses"][step]);
    if (step == 0) CHECK(apart < f["tolerance"]["first_loss"].get<double>());
    INFO("step ", step);
    CHECK(apart < f["tolerance"]["losses"].get<double>());
    worst = std::max(worst, apart);
  }
  MESSAGE(model.name, ": largest relative difference of ", f["losses"].size(), " losses ", worst);
}

void check_gradients(const Model& model, const nlohmann::json& f) {
  loss_of(model, f, 0, f["gradient_side"]).backward();
  const auto& expected = f["gradients"];
  const auto parameters = parameters_of(*model.module);
  REQUIRE(parameters.size() == expected.size());
  double worst = 1;
  for (const auto& p : parameters) {
    REQUIRE_MESSAGE(expected.contains(p.name), p.name);
    Fingerprint reference{.norm = expected[p.name]["norm"], .sums = expected[p.name]["sums"]};
    const double agreement = cosine(fingerprint(p.name, p.value.grad()), reference);
    CHECK_MESSAGE(agreement > f["tolerance"]["gradient_cosine"].get<double>(), p.name);
    worst = std::min(worst, agreement);
  }
  MESSAGE(model.name, ": smallest gradient cosine 1 - ", 1 - worst, " of ", parameters.size(), " parameters");
}

}  // namespace

TEST_CASE("resnet50: losses and gradients of plain PyTorch, with fused kernels and without") {
  OneThread one;
  const auto f = fixture("resnet50");
  for (const std::string fused : {"auto", "false"}) {
    CAPTURE(fused);
    const ResNetOptions options{.num_classes = f["classes"], .fused_kernels = fused};
    const Model model = resnet(50, options);
    CHECK(parameters_of(*model.module).numel() == f["parameters"].get<int64_t>());
    fill_by_formula(model, "bn3.weight", f["last_gamma"]["gradients"]);
    check_gradients(model, f);

    const Model fresh = resnet(50, options);
    fill_by_formula(fresh, "bn3.weight", f["last_gamma"]["losses"]);
    const auto& o = f["optimizer"];
    torch::optim::SGD sgd(fresh.module->parameters(),
                          torch::optim::SGDOptions(o["lr"]).momentum(o["momentum"]).weight_decay(o["weight_decay"]));
    check_losses(fresh, sgd, f);
  }
}

TEST_CASE("vit_tiny: losses and gradients of plain PyTorch") {
  OneThread one;
  const auto f = fixture("vit_tiny");
  const Model model = vit(vit_tiny_cifar10_options(), "vit_tiny_cifar10");
  CHECK(parameters_of(*model.module).numel() == f["parameters"].get<int64_t>());
  fill_by_formula(model);
  check_gradients(model, f);
  model.module->zero_grad();
  const auto& o = f["optimizer"];
  torch::optim::AdamW adamw(model.module->parameters(), torch::optim::AdamWOptions(o["lr"].get<double>()).weight_decay(o["weight_decay"]));
  check_losses(model, adamw, f);
}

TEST_CASE("the fingerprint distinguishes gradients") {
  const at::Tensor g = formula("a", {1000});
  const at::Tensor other = formula("b", {1000});
  const auto a = fingerprint("p", g);
  CHECK(cosine(a, fingerprint("p", g)) == doctest::Approx(1.0));
  CHECK(cosine(a, fingerprint("p", g + 0.05 * other)) < 0.9999);
  CHECK(cosine(a, fingerprint("p", g + 0.001 * other)) > 0.9999);
  CHECK(cosine(a, fingerprint("p", -g)) < 0);
}
