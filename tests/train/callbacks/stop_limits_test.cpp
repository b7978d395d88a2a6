#include "testing.hpp"

#include "train/callbacks/stop_limits.hpp"

using namespace npu_train;
using npu_train::detail::StopLimits;

namespace {

struct Limits {
  TrainerOptions options;
  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  std::atomic<bool> stop = false;
  SingleDeviceStrategy strategy;
  StopLimits limits{options, clock, stop, strategy};
};

}  // namespace

TEST_CASE("of several reasons to stop the first in the documented order is the one that is given") {
  Limits l;
  l.clock->advance(1);
  l.limits.begin_fit(/*attempts=*/0);
  l.options = {.max_epochs = 3, .max_steps = 5, .max_time = 10, .fast_dev_run = true};
  l.clock->advance(10);
  l.stop = true;
  const auto reason = [&] {
    l.limits.clear();
    CHECK(l.limits.reached(5, 3, /*attempts=*/1, /*early_stopping_is_due=*/true));
    return *l.limits.reason();
  };
  CHECK(reason() == StopReason::Requested);
  l.limits.drop_request();
  CHECK(reason() == StopReason::MaxSteps);
  l.options.max_steps = 6;
  CHECK(reason() == StopReason::MaxTime);
  l.options.max_time = -1;
  CHECK(reason() == StopReason::FastDevRun);
  l.options.fast_dev_run = false;
  CHECK(reason() == StopReason::MaxEpochs);
  l.options.max_epochs = -1;
  CHECK(reason() == StopReason::EarlyStopping);
  l.limits.clear();
  CHECK_FALSE(l.limits.reached(5, 3, 1, false));
  CHECK_FALSE(l.limits.reason());
}

TEST_CASE("inside an epoch only a request, steps and time end the training") {
  Limits l;
  l.options = {.max_epochs = 1, .max_steps = 5, .fast_dev_run = true};
  l.limits.begin_fit(0);
  CHECK_FALSE(l.limits.reached_in_epoch(4));
  CHECK(l.limits.reached_in_epoch(5));
  CHECK_FALSE(l.limits.requested());
  l.limits.end_by_request();
  CHECK(l.limits.requested());
}

TEST_CASE("the time of a program that calls no fit counts from its first epoch") {
  Limits l;
  l.options.max_time = 10;
  l.clock->advance(100);
  l.limits.begin_epoch();
  l.clock->advance(9);
  l.limits.begin_epoch();
  CHECK_FALSE(l.limits.reached_in_epoch(1));
  l.clock->advance(1);
  CHECK(l.limits.reached_in_epoch(1));
}

TEST_CASE("a request or the end of the time on another rank ends this one too") {
  struct OfAnother final : SingleDeviceStrategy {
    unsigned decide(unsigned wanted) override { return wanted | of_another; }
    unsigned of_another = 0;
  } strategy;
  const TrainerOptions options{.max_epochs = 3};
  std::atomic<bool> stop = false;
  const auto reason = [&](unsigned of_another) {
    strategy.of_another = of_another;
    StopLimits limits(options, std::make_shared<ManualClock>(), stop, strategy);
    limits.begin_fit(0);
    limits.reached_in_epoch(/*global_step=*/1);
    return limits.reason();
  };
  CHECK_FALSE(reason(0).has_value());
  CHECK(reason(1) == StopReason::Requested);
  CHECK(reason(2) == StopReason::MaxTime);
  CHECK(reason(3) == StopReason::Requested);
}
