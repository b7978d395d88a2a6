// Overflow reports on a device where no value becomes inf: a simulated Ascend 910A, which gives the largest number and raises a flag.
#include "testing.hpp"

#include "npu_train/train/overflow_report.hpp"
#include "saturating_device.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct WatchedToy {
  explicit WatchedToy(const std::string& mode, GradScalerOptions scaler = {}) : toy(mode, "sgd", 0, scaler) {}
  TrainStep step(bool anomalies) {
    return toy.step({.on_overflow = [this](const OverflowReport& r) { reports.push_back(r); }, .detect_anomaly = anomalies});
  }
  Toy toy;
  std::vector<OverflowReport> reports;
};

}  // namespace

TEST_CASE("in the forward: layer and bad sample, by the flag and the largest number") {
  use_910a();
  WatchedToy w("16-mixed", {.init_scale = 128});
  auto step = w.step(true);
  w.toy.net->first->weight.detach().mul_(100);
  auto batch = toy_batch(16, 6);
  REQUIRE(step.run({batch}).taken);
  auto input = batch.input().cpu();
  input[5] *= 1e4;  // the input itself is within fp16
  batch.set("input", input.to(batch.input().device()));
  CHECK_FALSE(step.run({batch}).taken);
  REQUIRE(w.reports.size() == 1);
  CHECK(w.reports[0].source.phase == "forward");
  CHECK(w.reports[0].source.layer == "first");
  CHECK((w.reports[0].samples == std::vector<int64_t>{5}));
  CHECK(step.run({toy_batch(16, 6)}).taken);
}

TEST_CASE("in the backward: a loss scale that is too large") {
  use_910a();
  WatchedToy w("16-mixed", {.init_scale = 0x1p24});
  CHECK_FALSE(w.step(true).run({toy_batch()}).taken);
  REQUIRE(w.reports.size() == 1);
  CHECK(w.reports[0].source.phase == "backward");
}

TEST_CASE("an overflow of before is not taken for one of this step, with a mode that does not scale either") {
  use_910a();
  WatchedToy w("32-true");
  auto step = w.step(true);
  (at::full({1}, 3e38F).to(device_under_test().c10()) * 10).cpu();
  const auto before = copy_of(w.toy.optimizer->parameters());
  step.run({toy_batch()});
  CHECK(w.reports.empty());
  for (const auto& p : w.toy.optimizer->parameters()) CHECK_FALSE(at::equal(p.value.cpu(), before.at(p.name).cpu()));
}
