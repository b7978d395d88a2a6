// Runs on device npu, with torch_npu's wheel on sim_cann (engine.npu.on_npu). Tests the parts of a run that torch_npu does not provide.
#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "device_under_test.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/dist/gradient_reducer.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/grad_scaler.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/classifier.hpp"
#include "npu_train/train/loop.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

const bool kOnWheel = name_of_device_under_test() == "npu";
const char* const kOnlyWithWheel = "only engine.npu.on_npu has torch_npu";
const bool kOn910A = [] {
  const char* soc = std::getenv("SIM_CANN_SOC");
  return kOnWheel && soc != nullptr && std::string(soc) == "910A";
}();

struct Mlp : torch::nn::Module {
  Mlp() : first(register_module("first", torch::nn::Linear(48, 16))), last(register_module("last", torch::nn::Linear(16, 4))) {}
  at::Tensor forward(const at::Tensor& x) { return last(at::relu(first(x.flatten(1)))); }
  torch::nn::Linear first, last;
};

std::shared_ptr<TensorDataset> images() {
  seed_everything(5);
  return std::make_shared<TensorDataset>(at::rand({32, 3, 4, 4}), at::randint(4, {32}, at::kLong));
}

RunConfig on(const std::string& device, const fs::path& dir, const std::string& precision) {
  RunConfig c{.device = device, .precision = precision};
  c.data.options = {{"batch_size", 8}, {"num_workers", "0"}};
  c.optimizer.options = {{"lr", 0.05}, {"momentum", 0.9}};
  c.trainer = {.max_epochs = 2, .threads = 1};
  c.output.dir = dir.string();
  return c;
}

State trained_weights(const RunConfig& config) {
  const auto data = images();
  auto net = std::make_shared<Mlp>();
  Trainer trainer(config);
  const auto result = trainer.fit(classifier(net), data, data);
  CHECK((result.reason == StopReason::MaxEpochs));
  CHECK(trainer.loop().parts().device.kind == config.device);
  return load_checkpoint(result.last_checkpoint, {"model"}).at("model");
}

}  // namespace

TEST_CASE("a run trains, saves and gives the CPU's weights, but for the order of sums") {
  TempDir dir;
  const auto weights_on = [&](const std::string& device) {
    auto config = on(device, dir / device, "32-true");
    config.optimizer = {.name = "adamw", .options = {{"lr", 0.05}}};  // the optimizer is fused on every chip, as on the CPU
    return trained_weights(config);
  };
  const auto ours = weights_on(device_under_test().kind), cpu = weights_on("cpu");
  REQUIRE(ours.tensors.size() == cpu.tensors.size());
  for (const auto& [name, tensor] : cpu.tensors) {
    CAPTURE(name);
    CHECK(at::allclose(ours.tensors.at(name), tensor, 1e-4, 1e-5));
  }
}

TEST_CASE("the device of a run is the thread's current one during each call, and no longer" * only_if(kOnWheel, kOnlyWithWheel)) {
  struct CurrentDevice : Callback {
    void on_step_end(TrainLoop& /*loop*/, const StepReport& /*report*/) override { indices.push_back(guard.getDevice().index()); }
    const c10::impl::VirtualGuardImpl guard{c10::DeviceType::PrivateUse1};
    std::vector<int> indices;
  };
  device_under_test();
  TempDir dir;
  const auto data = images();
  const auto seen = std::make_shared<CurrentDevice>();
  auto config = on("npu:1", dir / "run", "32-true");
  config.trainer.max_steps = 2;
  Trainer trainer(config);
  trainer.add_callback(seen);
  trainer.fit(classifier(std::make_shared<Mlp>()), data, data);
  CHECK((seen->indices == std::vector<int>{1, 1}));
  CHECK(seen->guard.getDevice().index() == 0);
}

TEST_CASE("a unit of zero3 has memory on the device of its parameters, whichever is the current one" * only_if(kOnWheel, kOnlyWithWheel)) {
  device_under_test();
  const auto options = at::TensorOptions().dtype(at::kFloat).device(c10::Device(c10::DeviceType::PrivateUse1, 1));
  ParameterSet all;
  all.add({.name = "first.weight", .value = at::ones({64}, options).requires_grad_(true)});
  all.add({.name = "weight", .value = at::ones({64}, options).requires_grad_(true)});
  GradientReducer reducer(all, ProcessGroup::from_environment(), {}, Sharding::Parameters, {{"first", {"first.weight"}}});
  for (const auto& p : all) CHECK(p.value.device().index() == 1);
  reducer.begin_window(1);
  reducer.begin_forward();
  const auto sum = reducer.run(
      0,
      [&](const at::Tensor& zero) {
        CHECK(all[0].value.storage().device().index() == 1);
        return zero + all[0].value.sum();
      },
      at::zeros({}, options).requires_grad_(true));
  CHECK(sum.item<double>() == 64);
}

TEST_CASE("auto takes the NPU, and fp16 on a chip without bf16" * only_if(kOnWheel, kOnlyWithWheel)) {
  device_under_test();
  Trainer trainer(on("auto", "", "auto"));
  trainer.setup(classifier(std::make_shared<Mlp>()), images());
  CHECK(trainer.loop().parts().device.str() == "npu:0");
  CHECK(trainer.loop().parts().precision->name() == (kOn910A ? "16-mixed" : "bf16-mixed"));
}

TEST_CASE("Autocast switches torch_npu's autocast, for a scope" * only_if(kOnWheel, kOnlyWithWheel)) {
  const auto& device = device_under_test();
  torch::nn::Linear layer(4, 4);
  layer->to(device.c10());
  const auto x = at::ones({2, 4}).to(device.c10());
  {
    const Autocast autocast(device, at::kHalf);
    CHECK((layer->forward(x).scalar_type() == at::kHalf));
  }
  CHECK((layer->forward(x).scalar_type() == at::kFloat));
}

TEST_CASE("GradScaler skips a step by the flag of a saturating chip, and the next step is clean" *
          only_if(kOn910A, "only engine.npu.on_npu_910A has such a chip")) {
  const auto& device = device_under_test();
  torch::nn::Linear layer(4, 1);
  layer->to(device.c10());
  torch::optim::SGD sgd(layer->parameters(), torch::optim::SGDOptions(0.1));
  GradScaler scaler;
  const auto attempt = [&](bool overflows) {
    sgd.zero_grad();
    const auto loss = layer->forward(at::ones({2, 4}).to(device.c10())).sum();
    const auto scaled = scaler.scale(loss);
    if (overflows) at::full({1}, 60000, at::TensorOptions().dtype(at::kHalf).device(device.c10())).mul_(2);
    scaled.backward();
    const bool taken = scaler.step(sgd);
    scaler.update();
    return taken;
  };
  const auto before = layer->weight.detach().cpu().clone();
  CHECK_FALSE(attempt(true));
  CHECK(at::equal(before, layer->weight.detach().cpu()));
  CHECK(scaler.get_scale() == 32768);
  CHECK(attempt(false));
  CHECK_FALSE(at::equal(before, layer->weight.detach().cpu()));
}
