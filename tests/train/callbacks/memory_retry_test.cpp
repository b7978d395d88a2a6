#include "testing.hpp"

#include "npu_train/core/log.hpp"
#include "train/callbacks/memory_retry.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::MemoryRetry;

namespace {

/// Runs out of memory in the forward of micro-batches larger than `most`.
class RunsOut final : public StepObserver {
 public:
  void phase_begin(Phase phase, int64_t, int) override {
    phases.push_back(phase);
    if (phase == Phase::Forward && forwards++ < failures) C10_THROW_ERROR(OutOfMemoryError, "out of memory");
  }
  int failures = 0, forwards = 0;
  std::vector<Phase> phases;
};

struct Retried {
  explicit Retried(bool enabled) {
    toy.observers.add(&observer);
    step.emplace(toy.step({.keep_start = enabled}));
    memory.emplace(MemoryRetry::Context{.task = *toy.task,
                                        .step = *step,
                                        .observers = toy.observers,
                                        .device = device_under_test(),
                                        .enabled = enabled,
                                        .train_loader = nullptr,
                                        .ranks = 1,
                                        .accumulate = 1,
                                        .failed = failed});
  }
  Toy toy;
  RunsOut observer;
  std::optional<TrainStep> step;
  std::optional<FailedWindow> failed;
  std::optional<MemoryRetry> memory;
};

}  // namespace

TEST_CASE("each failure halves the micro-batches, of this window and of later ones") {
  std::string said;
  const ScopedLogSink sink([&](LogLevel, std::string_view text) { said += text; });
  Retried run(true);
  run.observer.failures = 2;
  std::vector<Batch> window = {toy_batch(8)};
  CHECK(run.memory->run(window).samples == 8);
  CHECK(run.memory->limit() == 2);
  CHECK_FALSE(run.failed);
  CHECK(has(said, "in micro-batches of 4; to begin so: data.batch_size=4 trainer.accumulate_grad_batches=2"));
  run.observer.forwards = 2;
  run.memory->run(window);
  CHECK(run.observer.forwards == 2 + 4);
  CHECK(run.memory->state().integer("micro_batch_limit", "loop") == 2);
  Retried resumed(true);
  resumed.memory->load_state(run.memory->state());
  CHECK(resumed.memory->limit() == 2);
  resumed.memory->load_state({});  // a state of a version without this feature
  CHECK(resumed.memory->limit() == 0);
}

TEST_CASE("without retry the first failure ends the run and keeps its window") {
  Retried run(false);
  run.observer.failures = 1;
  std::vector<Batch> window = {toy_batch(8)};
  CHECK(error_of([&] { run.memory->run(window); }).kind() == ErrorKind::OutOfMemory);
  REQUIRE(run.failed);
  CHECK((run.failed->phase == Phase::Forward));
  CHECK(run.failed->batches.at(0).rows() == 8);
  CHECK(run.memory->limit() == 0);
}
