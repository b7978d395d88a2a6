#include "testing.hpp"

#include "npu_train/train/monitors.hpp"

#include <cmath>

#include <torch/nn/modules/linear.h>

#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("a monitor is a metric of the task, with or without the name of its data") {
  const auto task = classifier(torch::nn::Linear(2, 3), {.metrics = {accuracy(1), accuracy(5), auroc()}});
  const EarlyStoppingOptions off{.monitor = "val/nothing"};
  for (const char* known : {"auto", "loss", "val/loss", "train/loss", "acc1", "val/acc5", "train/acc1", "auroc", "val/auroc"})
    CHECK_NOTHROW(npu_train::detail::check_monitors(*task, {.monitor = known}, off));
  for (const char* unknown : {"acc", "val/", "", "test/acc1", "val/acc1 ", "val/val/acc1", "train/auroc"}) {
    const auto e = error_of([&] { npu_train::detail::check_monitors(*task, {.monitor = unknown}, off); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(has(e.what(), "[checkpoint.monitor] no metric '" + std::string(unknown) +
                            "'; there are, under train/ and val/: loss, acc1, acc5; under val/ alone: auroc"));
    const auto early = error_of([&] { npu_train::detail::check_monitors(*task, {}, {.enabled = true, .monitor = unknown}); });
    CHECK(has(early.what(), "[early_stopping.monitor] no metric"));
  }
}

TEST_CASE("the value of a monitor, and what is better") {
  const Scalars train = {{"loss", 1.0}}, val = {{"loss", 2.0}, {"acc1", 50.0}};
  CHECK(npu_train::detail::monitored("train/loss", train, val) == 1);
  CHECK(npu_train::detail::monitored("val/loss", train, val) == 2);
  CHECK(npu_train::detail::monitored("acc1", train, val) == 50);
  CHECK(std::isnan(npu_train::detail::monitored("train/acc1", train, val)));
  CHECK(npu_train::detail::improves(2, 1, /*larger=*/true, 0.5));
  CHECK_FALSE(npu_train::detail::improves(2, 1, false, 0.5));
  CHECK_FALSE(npu_train::detail::improves(1.5, 1, true, 0.5));
  CHECK(npu_train::detail::improves(1, npu_train::testing::kNaN, true, 0.5));
  CHECK_FALSE(npu_train::detail::improves(npu_train::testing::kNaN, 1, true, 0));
}
