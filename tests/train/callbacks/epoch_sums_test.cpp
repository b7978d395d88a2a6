#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "train/callbacks/epoch_sums.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::EpochSums;

namespace {

StepReport step_of(double loss, double acc1, int64_t samples, double weight, bool taken = true) {
  return {.taken = taken,
          .metrics = {{"loss", loss}, {"acc1", acc1}},
          .counts = {weight, static_cast<double>(samples)},
          .samples = samples,
          .weight = weight,
          .seconds = 2,
          .data_wait = 0.5};
}

}  // namespace

TEST_CASE("the loss of an epoch is weighted by its steps' weights, metrics by their counts; a skipped step counts for the time alone") {
  Toy toy;
  EpochSums sums(*toy.task);
  sums.add(step_of(1, 100, 10, 1));
  sums.add(step_of(5, 0, 30, 3));
  sums.add(step_of(kNaN, 0, 40, 1, /*taken=*/false));
  EpochReport report;
  sums.describe(report);
  CHECK(report.train == Scalars{{"loss", 4.0}, {"acc1", 25.0}});
  CHECK(report.skipped == 1);
  CHECK(report.seconds == 6);
  CHECK(report.data_wait == 1.5);
  CHECK(report.samples_per_second == doctest::Approx(80.0 / 6));
  sums.clear();
  sums.describe(report);
  CHECK(report.train.empty());
  CHECK(report.seconds == 0);
  CHECK(report.samples_per_second == 0);
}

TEST_CASE("metrics that change inside an epoch are reported by name") {
  std::vector<std::string> warnings;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) {
    if (level == LogLevel::Warning) warnings.emplace_back(text);
  });
  Toy toy;  // has the metrics acc1 and acc5
  EpochSums sums(*toy.task);
  auto state = sums.state();
  sums.report_other_names(state);  // a state without sums of an epoch
  for (const char* name : {"loss", "acc1", "acc5"}) state.values["epoch/sum/" + std::string(name)] = 1.0;
  sums.report_other_names(state);
  CHECK(warnings.empty());
  state.values.erase("epoch/sum/acc5");
  state.values["epoch/sum/f1"] = 1.0;
  sums.report_other_names(state);
  REQUIRE(warnings.size() == 2);
  CHECK(has(warnings[0], "no longer has: f1"));
  CHECK(has(warnings[1], "before this checkpoint: acc5"));
}

TEST_CASE("an epoch that is resumed inside has the averages of the complete one, in the order of reports") {
  Toy toy;
  EpochSums whole(*toy.task), half(*toy.task), rest(*toy.task);
  for (auto* sums : {&whole, &half}) sums->add(step_of(1, 50, 8, 8));
  rest.add(step_of(9, 9, 9, 9));  // replaced by the loaded state
  rest.load_state(half.state());
  for (auto* sums : {&whole, &rest}) sums->add(step_of(3, 75, 4, 4));
  CHECK(rest.train() == whole.train());
  CHECK(rest.train().at(0).first == "loss");
  CHECK((rest.state().values == whole.state().values));
  CHECK(whole.state().number("epoch/sum/loss", "loop") == 20);
  CHECK(whole.state().number("epoch/weight/acc1", "loop") == 12);
  auto broken = whole.state();
  broken.values.erase("epoch/seconds");
  CHECK(error_of([&] { rest.load_state(broken); }).kind() == ErrorKind::Checkpoint);
}
