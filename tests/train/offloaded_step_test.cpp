// Steps whose optimizer is on the host, compared with the same steps on the device: a simulated Ascend 910A, where only a flag of the
// device shows an overflow.
#include "testing.hpp"

#include "npu_train/dist/offload.hpp"
#include "npu_train/train/overflow_report.hpp"
#include "saturating_device.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct Offloaded {
  explicit Offloaded(bool offloads, const std::string& mode, GradScalerOptions scaler = {}, const std::string& optimizer = "sgd")
      : toy(mode, optimizer, 0, scaler) {
    if (!offloads) return;
    const auto strategy = std::make_shared<OffloadedStrategy>(toy.strategy);
    const auto updated = strategy->setup(toy.optimizer->parameters());
    toy.precision->set_updated(updated);
    toy.optimizer->set_parameters(updated);
    toy.strategy = strategy;
  }
  TrainStep step(StepOptions options = {}) {
    options.on_overflow = [this](const OverflowReport& r) { reports.push_back(r); };
    return toy.step(options);
  }
  std::map<std::string, at::Tensor> weights() const {
    auto out = copy_of(toy.task->parameters());
    for (auto& [name, tensor] : out) tensor = tensor.cpu();
    return out;
  }
  Toy toy;
  std::vector<OverflowReport> reports;
};

void check_equal_weights(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& entry : a) {
    CAPTURE(entry.first);
    CHECK(at::equal(entry.second, b.at(entry.first)));
  }
}

}  // namespace

TEST_CASE("the same bits as on the device, in every precision, with skipped steps, an average and accumulation") {
  use_910a();
  for (const std::string mode : {"32-true", "16-mixed", "16-true"})
    for (const std::string optimizer : {"sgd", "adamw"}) {
      CAPTURE(mode);
      CAPTURE(optimizer);
      std::vector<std::map<std::string, at::Tensor>> weights, averages;
      std::vector<std::vector<bool>> taken(2);
      std::vector<std::vector<float>> reported(2);
      for (const bool offloads : {false, true}) {
        Offloaded run(offloads, mode, {.init_scale = 0x1p24}, optimizer);
        run.toy.with_ema();
        auto step = run.step({.clip_value = 1, .clip_by_norm = false});
        for (uint64_t k = 0; k < 14; ++k) {
          const auto result = step.run({toy_batch(8, k), toy_batch(4, 100 + k)});
          taken[offloads].push_back(result.taken);
          CHECK(result.packed.device() == device_under_test().c10());
          const auto packed = result.packed.cpu();
          for (int64_t i = 0; i < packed.numel(); ++i) reported[offloads].push_back(packed[i].item<float>());
        }
        weights.push_back(run.weights());
        averages.push_back(copy_of(run.toy.average->averages()));
        for (auto& [name, average] : averages.back()) {
          CHECK(average.is_cpu() == offloads);
          average = average.cpu();
        }
        for (const auto& [name, tensor] : run.toy.optimizer->state().tensors) CHECK(tensor.is_cpu() == offloads);
      }
      CHECK(taken[0] == taken[1]);
      CHECK(reported[0] == reported[1]);
      CHECK(taken[1].back());
      CHECK(taken[1].front() == (mode == "32-true"));
      check_equal_weights(weights[0], weights[1]);
      check_equal_weights(averages[0], averages[1]);
    }
}

TEST_CASE("an overflow that shows in the device's flag alone is seen, in forward and backward, and does not last") {
  use_910a();
  for (const bool offloads : {false, true}) {
    CAPTURE(offloads);
    Offloaded run(offloads, "16-mixed", {.init_scale = 128});
    auto step = run.step({.detect_anomaly = true});
    run.toy.net->first->weight.detach().mul_(100);
    if (offloads) run.toy.strategy->parameters_loaded();
    auto batch = toy_batch(16, 6);
    REQUIRE(step.run({batch}).taken);
    const auto before = run.weights();
    auto input = batch.input().cpu();
    input[5] *= 1e4;
    batch.set("input", input.to(batch.input().device()));
    CHECK_FALSE(step.run({batch}).taken);
    check_equal_weights(before, run.weights());
    REQUIRE(run.reports.size() == 1);
    CHECK(run.reports[0].source.layer == "first");
    CHECK(step.run({toy_batch(16, 6)}).taken);
    (at::full({1}, 3e38F).to(device_under_test().c10()) * 10).cpu();  // an overflow between steps
    CHECK(step.run({toy_batch(16, 6)}).taken);

    Offloaded large(offloads, "16-mixed", {.init_scale = 0x1p24});
    auto first = large.step({.detect_anomaly = true});
    CHECK_FALSE(first.run({toy_batch()}).taken);
    REQUIRE(large.reports.size() == 1);
    CHECK(large.reports[0].source.phase == "backward");
  }
}

TEST_CASE("in a precision that skips no step the flag explains an anomaly") {
  use_910a();
  for (const bool offloads : {false, true}) {
    CAPTURE(offloads);
    Offloaded run(offloads, "32-true");
    auto step = run.step({.detect_anomaly = true});
    step.run({toy_batch()});
    CHECK(run.reports.empty());
    auto batch = toy_batch();
    batch.set("input", batch.input() * 3e38F);
    step.run({batch});
    CHECK(run.reports.size() == 1);
  }
}

TEST_CASE("clipping by norm is computed on the host, and reported with the numbers of the device") {
  use_910a();
  std::vector<float> norms;
  for (const bool offloads : {false, true}) {
    Offloaded run(offloads, "32-true");
    auto step = run.step({.clip_value = 0.1});
    const auto packed = step.run({toy_batch()}).packed;
    CHECK(packed.device() == device_under_test().c10());
    norms.push_back(packed.cpu().select(0, packed.numel() - 1).item<float>());
  }
  CHECK(norms[0] > 0.1);
  CHECK(norms[1] == doctest::Approx(norms[0]).epsilon(1e-6));  // a chip without fp64 adds rounded squares
}

TEST_CASE("a window that is undone leaves no gradient of a master behind") {
  use_910a();
  Offloaded run(true, "16-true", {.init_scale = 128});
  auto step = run.step({.keep_start = true});
  step.run({toy_batch()});
  auto wrong = toy_batch();
  wrong.set("target", wrong.target().slice(0, 0, 3));
  CHECK_THROWS(step.run({toy_batch(), wrong}));
  const auto& masters = on_device(*run.toy.strategy, run.toy.optimizer->parameters());
  CHECK_FALSE(masters.grads().empty());
  step.undo_window();
  CHECK(masters.grads().empty());
}

TEST_CASE("parameters that are frozen and thawed, and a saved state that is loaded in another process") {
  use_910a();
  for (const std::string mode : {"32-true", "16-true"}) {
    CAPTURE(mode);
    std::vector<std::map<std::string, at::Tensor>> ends;
    for (const bool offloads : {false, true}) {
      Offloaded run(offloads, mode, {.init_scale = 128}), later(offloads, mode, {.init_scale = 128});
      run.toy.with_ema();
      later.toy.with_ema();
      const auto loop = run.toy.loop({}), second = later.toy.loop({});
      const auto freeze = [&](bool frozen) {
        for (auto& p : run.toy.net->first->parameters()) p.set_requires_grad(!frozen);
        loop->refresh_parameters();
      };
      loop->train_step({toy_batch(8, 1)});
      freeze(true);
      loop->train_step({toy_batch(8, 2)});
      second->load_state(loop->state());
      CHECK(later.toy.optimizer->parameters().size() == run.toy.optimizer->parameters().size());
      freeze(false);
      loop->train_step({toy_batch(8, 3)});
      for (auto& p : later.toy.net->first->parameters()) p.set_requires_grad(true);
      second->refresh_parameters();
      second->train_step({toy_batch(8, 3)});
      ends.push_back(run.weights());
      check_equal_weights(ends.back(), later.weights());
      for (const auto& p : run.toy.optimizer->parameters()) CHECK(p.value.is_cpu() == offloads);
    }
    check_equal_weights(ends[0], ends[1]);
  }
}

TEST_CASE("averages of zero3 on the host do not follow parameters that are frozen later") {
  struct InUnits final : SingleDeviceStrategy {
    Sharding sharding() const override { return Sharding::Parameters; }
  };
  Toy toy;
  toy.strategy = std::make_shared<OffloadedStrategy>(std::make_shared<InUnits>());
  toy.optimizer->set_parameters(toy.strategy->setup(toy.optimizer->parameters()));
  toy.with_ema();
  const auto loop = toy.loop({});
  auto saved = loop->state();
  saved["loop"].values["trained"] = toy.optimizer->parameters()[0].name;
  const auto error = error_of([&] { loop->load_state(saved); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "cannot follow; allowed with it: dist.offload=none, trainer.strategy=zero2"));
}
