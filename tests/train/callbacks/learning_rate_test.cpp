#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "train/callbacks/learning_rate.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::LearningRate;

namespace {

std::vector<OptimizerParts> at_rate(const Toy& toy, double lr) { return {{.optimizer = toy.optimizer.get(), .base_lr = lr}}; }

}  // namespace

TEST_CASE("the rate is the schedule's in its unit, times the factor") {
  Toy toy;
  const LrSchedule by_epoch([](double t) { return 1 / (1 + t); }, true), by_step([](double t) { return 1 / (1 + t); }, false);
  LearningRate epochs(&by_epoch, at_rate(toy, 0.8)), steps(&by_step, at_rate(toy, 0.8));
  epochs.set(1, 3);
  CHECK(toy.optimizer->lr() == 0.4);
  steps.set(1, 3);
  CHECK(toy.optimizer->lr() == 0.2);
  steps.set_factor(0.5);
  CHECK(toy.optimizer->lr() == 0.2);  // applies from the next step on
  steps.set(1, 3);
  CHECK(toy.optimizer->lr() == 0.1);
  for (const double bad : {-1.0, kNaN, kInf}) CHECK(error_of([&] { steps.set_factor(bad); }).kind() == ErrorKind::Usage);
  CHECK(steps.factor() == 0.5);
  LearningRate resumed(&by_step, at_rate(toy, 0.8));
  resumed.load_state(steps.state());
  CHECK(resumed.factor() == 0.5);
}

TEST_CASE("a resumed run whose schedule has another rate there reports it, and one with the same rates reports nothing") {
  std::vector<std::string> warnings;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) warnings.emplace_back(text);
  });
  Toy toy;
  const auto cosine = [](double length) { return LrSchedule([length](double t) { return schedule::cosine(t, length, 0); }, true); };
  const auto three = cosine(3), six = cosine(6);
  LearningRate first(&three, at_rate(toy, 0.8));
  first.set(0, 4);
  LearningRate same(&three, at_rate(toy, 0.8)), longer(&six, at_rate(toy, 0.8)), lower(&three, at_rate(toy, 0.4));
  same.load_state(first.state());
  CHECK(warnings.empty());
  longer.load_state(first.state());
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "the learning rate of epoch 1 is 0.74"));
  CHECK(has(warnings[0], "and was 0.6 in the run of the checkpoint"));
  lower.load_state(first.state());
  CHECK(warnings.size() == 2);
  same.load_state({{}, {{"lr_factor", 1.0}}});  // a state of an older version
  CHECK(warnings.size() == 2);
  CHECK(same.state().values.count("lr_there") == 0);
}

TEST_CASE("a rate that was set past the schedule is overwritten with one warning") {
  int warnings = 0;
  const ScopedLogSink sink([&](LogLevel level, std::string_view) { warnings += level == LogLevel::Warning ? 1 : 0; });
  Toy toy;
  LearningRate rate(&toy.schedule, at_rate(toy, 0.1));
  for (int i = 0; i < 3; ++i) {
    rate.set(0, i);
    CHECK(toy.optimizer->lr() == 0.1);
    toy.optimizer->set_lr(7);
  }
  CHECK(warnings == 1);
}
