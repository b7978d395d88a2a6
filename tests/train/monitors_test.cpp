#include "testing.hpp"

#include "npu_train/train/monitors.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("a monitor is a metric of the task, with or without the name of its data") {
  const std::vector<std::string> metrics = {"acc1", "acc5"};
  const EarlyStoppingOptions off{.monitor = "val/nothing"};
  for (const char* known : {"auto", "loss", "val/loss", "train/loss", "acc1", "val/acc5", "train/acc1"})
    CHECK_NOTHROW(npu_train::detail::check_monitors(metrics, {.monitor = known}, off));
  for (const char* unknown : {"acc", "val/", "", "test/acc1", "val/acc1 ", "val/val/acc1"}) {
    const auto e = error_of([&] { npu_train::detail::check_monitors(metrics, {.monitor = unknown}, off); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(
        has(e.what(), "[checkpoint.monitor] no metric '" + std::string(unknown) + "'; there are, under train/ and val/: loss, acc1, acc5"));
    const auto early = error_of([&] { npu_train::detail::check_monitors(metrics, {}, {.enabled = true, .monitor = unknown}); });
    CHECK(has(early.what(), "[early_stopping.monitor] no metric"));
  }
}
