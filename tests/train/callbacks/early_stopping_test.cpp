#include "testing.hpp"

#include "npu_train/train/callbacks/early_stopping.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

EarlyStopping watching(const std::string& monitor, double min_delta = 0) {
  return EarlyStopping({.enabled = true, .monitor = monitor, .patience = 2, .min_delta = min_delta});
}

}  // namespace

TEST_CASE("early stopping is due after as many epochs without improvement as its patience, in a row") {
  auto early = watching("val/loss");
  const auto due_after = [&](double loss) {
    early.note({}, {{"loss", loss}});
    return early.is_due();
  };
  CHECK_FALSE(due_after(1.0));
  CHECK_FALSE(due_after(1.5));
  CHECK_FALSE(due_after(0.5));  // counts from 0 again
  CHECK_FALSE(due_after(0.5));  // an equal value is no improvement
  CHECK(due_after(kNaN));
}

TEST_CASE("min_delta, the direction of the metric, and a metric of the training data") {
  auto loss = watching("val/loss", 0.1);
  for (const double value : {1.0, 0.95, 0.91}) loss.note({}, {{"loss", value}});
  CHECK(loss.is_due());
  auto accuracy = watching("acc1");
  for (const double value : {10.0, 11.0, 12.0}) accuracy.note({}, {{"acc1", value}});
  CHECK_FALSE(accuracy.is_due());
  auto train = watching("train/loss");
  for (int i = 0; i < 3; ++i) train.note({{"loss", 1.0}}, {});
  CHECK(train.is_due());
}

TEST_CASE("an epoch without a validation does not count for a metric of validation") {
  auto early = watching("val/loss");
  early.note({}, {{"loss", 1.0}});
  for (int i = 0; i < 5; ++i) early.note({{"loss", 2.0}}, {});
  CHECK_FALSE(early.is_due());
}

TEST_CASE("options outside of their limits are refused, in a loop of the program, too") {
  const auto refused = [](const EarlyStoppingOptions& options) {
    return std::string(error_of([&] { EarlyStopping early(options); }).what());
  };
  CHECK(has(refused({.enabled = true, .patience = 0}), "early_stopping.patience: '0' is out of range; allowed: at least 1"));
  CHECK(has(refused({.enabled = true, .mode = "mni"}), "early_stopping.mode: 'mni' is not known, did you mean 'min'?"));
}

TEST_CASE("early stopping that is off is never due") {
  EarlyStopping off({.enabled = false, .patience = 1});
  for (int i = 0; i < 3; ++i) off.note({}, {{"loss", 1.0}});
  CHECK_FALSE(off.is_due());
}

TEST_CASE("a resumed run counts on, under the keys that checkpoints have had since format 1") {
  auto early = watching("val/loss"), resumed = watching("val/loss");
  for (const double loss : {0.5, 0.6}) early.note({}, {{"loss", loss}});
  const auto state = early.state();
  CHECK(state.integer("without_improvement", "loop") == 1);
  CHECK(state.number("early_best", "loop") == 0.5);
  resumed.load_state(state);
  resumed.note({}, {{"loss", 0.55}});
  CHECK(resumed.is_due());
  State broken = state;
  broken.values.erase("early_best");
  CHECK(error_of([&] { resumed.load_state(broken); }).kind() == ErrorKind::Checkpoint);
  CHECK(resumed.is_due());
}
