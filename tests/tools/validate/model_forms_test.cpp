#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/nn.h>

#include "npu_train/models/vit.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/tools/validate/precision_validator.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

VitOptions small_vit(const std::string& qkv, const std::string& gelu = "exact") {
  VitOptions o;
  o.image_size = 32, o.patch_size = 8, o.dim = 32, o.depth = 2, o.heads = 2, o.num_classes = 10;
  o.qkv = qkv, o.gelu = gelu;
  return o;
}

PrecisionValidatorOptions quick() {
  PrecisionValidatorOptions o;
  o.forms = {.batch = 4, .pairs = 3, .epochs = 3, .batches = 2};
  return o;
}

std::vector<at::Tensor> values_of(const Model& model) {
  std::vector<at::Tensor> out;
  for (const auto& [name, value] : named_state(*model.module)) out.push_back(value.detach().clone());
  return out;
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return at::equal(x, y); });
}

RunConfig on_cpu() {
  RunConfig config{.seed = 3, .device = "cpu", .precision = "32-true"};
  config.trainer.threads = 1;
  return config;
}

}  // namespace

TEST_CASE("a fused and a split projection are one model: converted weights, equal outputs, equal training") {
  const auto form = vit(small_vit("split")), original = vit(small_vit("fused"));
  const auto before = values_of(original);
  const auto report = PrecisionValidator(quick()).compare_forms(form, original, on_cpu());
  INFO(to_text(report));
  CHECK(report.passed());
  CHECK(report.converted.size() == 2 * 6);  // two blocks with weights and biases of q, k and v
  CHECK(report.max_diff < 1e-4);
  CHECK(report.mean_diff <= report.max_diff);
  CHECK(report.reference_max > 0);
  CHECK(report.input == std::vector<int64_t>{4, 3, 32, 32});
  CHECK(report.form_ms > 0);
  CHECK(report.original_ms > 0);
  REQUIRE(report.epochs.size() == 3);
  CHECK(report.epochs[2].original < report.epochs[0].original);  // training has an effect
  CHECK(report.epochs[2].form < report.epochs[0].form);
  CHECK(!report.layers.empty());
  CHECK(same(before, values_of(original)));  // restored after the check
  // the form has the original's weights, joined
  const at::NoGradGuard no_grad;
  form.module->eval(), original.module->eval();
  const auto x = at::ones({1, 3, 32, 32});
  CHECK((form.forward(x) - original.forward(x)).abs().max().item<float>() < 1e-4f);
}

TEST_CASE("another GELU is another function, and is found") {
  auto options = quick();
  options.forms.epochs = 0;
  options.forms.limit = 1e-6;
  const auto report = PrecisionValidator(options).compare_forms(vit(small_vit("split", "tanh")), vit(small_vit("fused")), on_cpu());
  CHECK(!report.outputs_agree);
  CHECK(!report.passed());
  CHECK(has(to_text(report), "DIFFER"));
}

TEST_CASE("layers by their names") {
  auto options = quick();
  options.forms.epochs = 0;
  options.layer_names = {"*mlp.0", "*mlp.3"};
  const auto report = PrecisionValidator(options).compare_forms(vit(small_vit("split")), vit(small_vit("fused")), on_cpu());
  CHECK(report.layers.size() == 4);
  options.layer_names = {"no_such_layer"};
  const auto e = error_of([&] { PrecisionValidator(options).compare_forms(vit(small_vit("split")), vit(small_vit("fused")), on_cpu()); });
  CHECK((e.kind() == ErrorKind::Usage));
  CHECK(has(e.what(), "no_such_layer"));
}

namespace {

struct OneNetImpl : torch::nn::Module {
  OneNetImpl() : first(register_module("first", torch::nn::Linear(12, 8))), last(register_module("last", torch::nn::Linear(8, 4))) {}
  at::Tensor forward(const at::Tensor& x) { return last(at::relu(first(x.flatten(1)))); }
  torch::nn::Linear first, last;
};
TORCH_MODULE(OneNet);

Model one_net(bool wrong = false) {
  auto net = OneNet();
  auto model = as_model(net);
  model.inputs = {image_input(3, 2)}, model.num_classes = 4;
  if (wrong) model.forward = [net](const at::Tensor& x) mutable { return net->forward(x) * 1.01; };
  return model;
}

}  // namespace

TEST_CASE("two C++ models with equal names, one of them wrong after its layers") {
  auto options = quick();
  options.layer_names = {"first=first"};
  const auto good = PrecisionValidator(options).compare_forms(one_net(), one_net(), on_cpu());
  INFO(to_text(good));
  CHECK(good.passed());
  CHECK(good.max_diff == 0);
  CHECK(good.layers.size() == 1);
  const auto bad = PrecisionValidator(options).compare_forms(one_net(true), one_net(), on_cpu());
  CHECK(!bad.outputs_agree);
  CHECK(bad.layers_agree);  // the fault comes after the layer
}

TEST_CASE("without options: batch 8 at 224 x 224, a limit of 1e-4, three epochs of AdamW at 1e-4") {
  auto net = torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 2, 16).stride(16));
  auto model = as_model(net);
  model.inputs = {image_input(3, 224)}, model.num_classes = 2;
  std::vector<at::Tensor> weights;  // at each forward pass of the training
  model.forward = [net, &weights](const at::Tensor& x) mutable {
    if (at::GradMode::is_enabled()) weights.push_back(net->weight.detach().clone());
    return net->forward(x).mean({2, 3});
  };
  auto original = as_model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 2, 16).stride(16)));
  original.inputs = model.inputs, original.num_classes = 2;
  const auto plain = original.forward;
  original.forward = [plain](const at::Tensor& x) { return plain(x).mean({2, 3}); };
  PrecisionValidatorOptions options;
  options.forms.pairs = 1;  // saves time
  const auto report = PrecisionValidator(options).compare_forms(model, original, on_cpu());
  INFO(to_text(report));
  CHECK(report.input == std::vector<int64_t>{8, 3, 224, 224});
  CHECK(report.limit == 1e-4);
  CHECK(report.epochs.size() == 3);
  REQUIRE(weights.size() >= 2);
  // Adam's first step changes every weight by the learning rate, against the sign of its gradient; decay adds at most a hundredth of it.
  const auto moved = (weights[1] - weights[0]).abs();
  CHECK(moved.min().item<float>() > 0.9e-4f);
  CHECK(moved.max().item<float>() < 1.1e-4f);
}

TEST_CASE("two networks are no two forms of one") {
  auto other = small_vit("split");
  other.dim = 48;
  const auto e = error_of([&] { PrecisionValidator(quick()).compare_forms(vit(other), vit(small_vit("fused")), on_cpu()); });
  CHECK((e.kind() == ErrorKind::Checkpoint));
  const auto model = vit(small_vit("fused"));
  CHECK((error_of([&] { PrecisionValidator(quick()).compare_forms(model, model, on_cpu()); }).kind() == ErrorKind::Usage));
}

TEST_CASE("layers of a validation by their names") {
  RunConfig config = on_cpu();
  config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
  config.data = {.name = "generated", .options = {{"train_size", 16}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
  config.optimizer = {.name = "adamw", .options = {{"lr", 1e-3}}};
  auto low = config;
  low.precision = "bf16-mixed";
  PrecisionValidatorOptions options;
  options.samples = 8, options.train_steps = 1;
  options.layer_names = {"*mlp.0"};
  const auto report = PrecisionValidator(options).validate(low, config);
  CHECK(report.layers.size() == 1);
  options.layer_names = {"nothing"};
  CHECK(has(error_of([&] { PrecisionValidator(options).validate(low, config); }).what(), "nothing"));
}
