// data.augment_on: device, on each kind of device: the CPU, the simulated NPU and, if present, a GPU.
#include "testing.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>

#include "device_under_test.hpp"
#include "npu_train/data/datasets.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/engine/trainer.hpp"
#include "short_run.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns a run with every transform that has a form for devices, and both ways to mix.
RunConfig augmented_run(const std::string& where) {
  auto c = short_run();
  c.device = device_under_test().str();
  c.data.options = parse_yaml(
      "{train_size: 60, val_size: 20, batch_size: 8, num_workers: 2, mixup_alpha: 0.4, cutmix_alpha: 0.7, train_transforms: [{name: "
      "random_crop, size: 32, padding: 4}, horizontal_flip, {name: random_rotation, degrees: 30}, {name: color_jitter, hue: 0.4}, "
      "gaussian_blur, {name: random_erasing, p: 0.7}, normalize]}",
      "test");
  c.data.options.set("augment_on", ConfigNode(where));
  c.trainer.static_shapes = true;
  return c;
}

std::vector<Batch> batches_of(const std::string& where, const Device& device) {
  const auto pair = builtin_datasets().make(augmented_run(where).data, "data", builtin_transforms());
  Loader train = train_loader(pair, {.last_batch = LastBatch::Pad, .seed = 6}), val = val_loader(pair, {.last_batch = LastBatch::Pad});
  std::vector<Batch> out;
  for (Loader* loader : {&train, &val})
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      loader->begin_epoch(epoch);
      while (const auto batch = loader->next()) out.push_back(to_device(*batch, device));
    }
  return out;
}

}  // namespace

TEST_CASE("images, labels and masks equal the host's within 1e-5, computed by the device's operators without reading back") {
  const Device device = device_under_test();
  const bool simulated = device.kind == "sim_npu";
  const auto host = batches_of("host", Device{});
  const auto before = simulated ? sim_npu_counters() : SimNpuCounters{};
  const auto there = batches_of("device", device);
  if (simulated) {
    CHECK(sim_npu_counters().cpu_fallbacks == before.cpu_fallbacks);
    CHECK(sim_npu_counters().host_reads == before.host_reads);
    CHECK(sim_npu_counters().ops > before.ops + 1000);
  }
  REQUIRE(host.size() == there.size());
  for (size_t i = 0; i < host.size(); ++i) {
    CAPTURE(i);
    REQUIRE(host[i].fields().size() == there[i].fields().size());
    for (const auto& [name, value] : host[i].fields()) {
      CAPTURE(name);
      const at::Tensor& other = there[i].at(name);
      CHECK((other.device() == device.c10()));
      CHECK((other.scalar_type() == value.scalar_type()));
      CHECK((other.cpu() - value).abs().max().item<double>() < 1e-5);
    }
  }
}

TEST_CASE("a training from images changed on the device has the losses of one from images changed on the host") {
  const auto losses = [](const std::string& where, const std::string& workers) {
    auto config = augmented_run(where);
    config.data.options.set("num_workers", ConfigNode(workers));
    config.trainer.max_epochs = 2;
    Trainer trainer(config);
    std::vector<double> out;
    struct Losses final : Callback {
      explicit Losses(std::vector<double>& all) : all(all) {}
      void on_step_end(TrainLoop&, const StepReport& report) override { all.push_back(scalar_or(report.metrics, "loss", kNaN)); }
      std::vector<double>& all;
    };
    trainer.add_callback(std::make_shared<Losses>(out));
    out.push_back(scalar_or(trainer.fit().final_val, "loss", kNaN));
    return out;
  };
  const auto host = losses("host", "0"), device = losses("device", "2");
  REQUIRE(host.size() == 17);  // the last batch of an epoch is padded
  REQUIRE(device.size() == host.size());
  for (size_t i = 0; i < host.size(); ++i) CHECK(device[i] == doctest::Approx(host[i]).epsilon(1e-4));
  if (device_under_test().is_cpu()) CHECK(host == device);
}
