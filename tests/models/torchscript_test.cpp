#include "testing.hpp"

#include "npu_train/models/torchscript.hpp"

#include <fstream>

#include <torch/nn/module.h>
#include <torch/script.h>

#include "npu_train/nn/module_state.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Writes a convolution, batch normalisation and a classifier as Python would save them.
std::string scripted_net(const std::filesystem::path& path) {
  const auto cu = std::make_shared<torch::jit::CompilationUnit>();
  const auto module = [&](const std::string& type) {
    torch::jit::Module m(c10::QualifiedName("__torch__." + type), cu, true);
    m.register_attribute("training", c10::BoolType::get(), true);
    return m;
  };
  auto bn = module("torch.nn.modules.batchnorm.BatchNorm2d");
  for (const char* name : {"weight", "bias"}) bn.register_parameter(name, torch::ones({4}, torch::requires_grad()), false);
  for (const char* name : {"running_mean", "running_var"}) bn.register_buffer(name, torch::ones({4}));
  bn.register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
  bn.define(
      "def forward(self, x):\n  return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training, "
      "0.1, 1e-5, False)\n");
  auto net = module("Net");
  net.register_parameter("kernel", torch::randn({4, 3, 3, 3}, torch::requires_grad()), false);
  net.register_parameter("scale", torch::randn({10, 4}, torch::requires_grad()), false);
  net.register_module("bn", bn);
  net.define(
      "def forward(self, x):\n  y = self.bn.forward(torch.conv2d(x, self.kernel))\n  return torch.matmul(torch.relu(y).mean([2, 3]), "
      "self.scale.t())\n");
  net.save(path.string());
  return path.string();
}

}  // namespace

TEST_CASE("parameters and buffers are those of the script, and it is saved with their new values") {
  TempDir dir;
  const auto path = scripted_net(dir / "m.pt");
  const auto model = torchscript({.path = path, .allow_code = true, .num_classes = 10, .image_size = 8});
  std::vector<std::string> names;
  for (const auto& [name, value] : named_state(*model.module)) names.push_back(name);
  CHECK(names ==
        std::vector<std::string>{"kernel", "scale", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"});
  CHECK(norm_parameters_of(*model.module) == std::vector<std::string>{"bn.weight", "bn.bias"});
  const auto x = torch::randn({4, 3, 8, 8});
  model.forward(x).sum().backward();
  const auto parameters = model.module->named_parameters();
  for (const auto& p : parameters) CHECK_MESSAGE(p.value().grad().defined(), p.key());
  {
    const torch::NoGradGuard none;
    for (const auto& p : parameters) p.value().add_(0.5);
  }
  // Training has updated the script's statistics, which are those of the module.
  CHECK_FALSE(torch::equal(model.module->named_buffers()["bn.running_mean"], torch::ones({4})));
  model.module->eval();
  const auto expected = model.forward(x);
  std::ofstream(dir / "trained.pt", std::ios::binary) << torchscript_bytes(model);
  auto again = torch::jit::load((dir / "trained.pt").string());
  CHECK_FALSE(again.is_training());
  CHECK(torch::equal(again.forward({x}).toTensor(), expected));
  CHECK_FALSE(torch::allclose(torch::jit::load(path).forward({x}).toTensor(), expected));
}

TEST_CASE("a change of dtype reaches the script") {
  TempDir dir;
  const auto model = torchscript({.path = scripted_net(dir / "m.pt"), .allow_code = true, .num_classes = 10});
  model.module->to(torch::kDouble);
  CHECK((model.forward(torch::randn({2, 3, 8, 8}, torch::kDouble)).scalar_type() == torch::kDouble));
}

TEST_CASE("code runs only with permission, and what is not TorchScript is an error") {
  TempDir dir;
  const auto path = scripted_net(dir / "m.pt");
  const auto error = [](TorchScriptOptions o) { return error_of([&] { torchscript(o); }); };
  const auto refused = error({.path = path});
  CHECK(refused.kind() == ErrorKind::Usage);
  for (const char* part : {"m.pt", "contains code", "model.allow_code=true"}) CHECK(has(refused.what(), part));
  CHECK(has(error({.path = (dir / "none.pt").string(), .allow_code = true}).what(), "no such file"));
  CHECK(has(error({.allow_code = true}).what(), "model.path"));
  std::ofstream(dir / "text.pt") << "no module";
  CHECK(error({.path = (dir / "text.pt").string(), .allow_code = true}).kind() == ErrorKind::Usage);
  const auto model = torchscript({.path = path, .allow_code = true, .num_classes = 7});
  const auto classes = error_of([&] { model.forward(torch::randn({2, 3, 8, 8})); });
  CHECK(has(classes.what(), "[2, 10]"));
  CHECK(has(classes.what(), "model.num_classes"));
  CHECK(error_of([&] { torchscript_bytes(Model{}); }).kind() == ErrorKind::Usage);
}
