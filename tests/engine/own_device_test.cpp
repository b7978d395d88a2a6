// A kind of device that a program adds through the configuration. It owns PrivateUse1 in this process: the simulator under another name.
#include "testing.hpp"

#include <torch/types.h>

#include "engine/short_run.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/trainer.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

class Abacus final : public GenericBackend {
 public:
  Abacus() : GenericBackend("abacus", c10::DeviceType::PrivateUse1) {}
  void activate() const override { find_backend("sim_npu")->activate(); }
  std::string why_not() const override { return is_available() ? "" : "the abacus is not started"; }
  Capabilities capabilities(const Device& device) const override {
    checked(device);
    return {.native_bf16 = true, .native_fp16 = true, .channels_last = true, .skips_on_device = false};
  }
};

Parts parts_with_abacus() {
  auto parts = builtin_parts();
  parts.devices.add<NoOptions>("abacus", "counts", [](const NoOptions&) { return std::make_shared<Abacus>(); });
  return parts;
}

}  // namespace

TEST_CASE("a device of the program's own trains, and takes the place of libtorch's one external device") {
  auto config = short_run();
  config.trainer.max_steps = 3;
  config.device = "abacus";
  const auto unknown = error_of([&] { check_config(config); });
  CHECK(has(unknown.what(), "sim_npu"));
  CHECK(!has(unknown.what(), "sim_npu, abacus"));

  const auto parts = parts_with_abacus();
  Trainer trainer(config, parts);
  trainer.fit();
  for (const auto& p : trainer.task().parameters()) CHECK(p.value.is_privateuseone());
  auto on_cpu = config;
  on_cpu.device = "cpu";
  Trainer reference(on_cpu);
  reference.fit();
  const auto x = torch::ones({2, 3, 32, 32});
  // The device adds in another order than the CPU, over three steps.
  CHECK(torch::allclose(trainer.predict(x), reference.predict(x), 1e-3, 1e-3));

  const c10::Device abacus(c10::DeviceType::PrivateUse1, 0);
  CHECK(device_of(abacus).kind == "abacus");
  CHECK_FALSE(has_all_fused_optimizers(abacus));  // the backend does not set it
  CHECK(has_fused_sgd(abacus));
  CHECK(has_all_fused_optimizers(c10::Device(c10::DeviceType::CPU)));
  const auto second = error_of([] { resolve_device("sim_npu"); });
  CHECK(second.kind() == ErrorKind::Device);
  CHECK(has(second.what(), "this process uses the device abacus"));
  CHECK(has(error_of([] { Device::parse("abbacus"); }).what(), "did you mean abacus"));
}

TEST_CASE("a factory that makes another device than its name says is refused") {
  auto parts = builtin_parts();
  parts.devices.add<NoOptions>("slide_rule", "slides", [](const NoOptions&) { return std::make_shared<Abacus>(); });
  CHECK(has(error_of([&] { register_devices(parts); }).what(), "'slide_rule' made a backend of the name 'abacus'"));
  CHECK(error_of([] { add_backend(nullptr); }).kind() == ErrorKind::Usage);
  struct Named final : GenericBackend {
    explicit Named(const std::string& name) : GenericBackend(name, c10::DeviceType::PrivateUse1) {}
    std::string why_not() const override { return "absent"; }
    Capabilities capabilities(const Device&) const override { return {}; }
  };
  for (const char* name : {"", "auto", "cpu", "My Device", "a:0"})
    CHECK(error_of([&] { add_backend(std::make_shared<Named>(name)); }).kind() == ErrorKind::Usage);
}
