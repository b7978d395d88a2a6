#include "testing.hpp"

#include "train/callbacks/rollback.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::LearningRate;
using npu_train::detail::Rollback;

namespace {

struct Diverging {
  TempDir dir;
  Toy toy;
  CheckpointStore store{(dir / "c").string(), {}};
  LearningRate rate{&toy.schedule, {{.optimizer = toy.optimizer.get(), .base_lr = 0.1}}};
  int kept = 0, loaded = 0;

  void save(const Rollback& rollback) {
    RunState state;
    state["loop"].values = rollback.state().values;
    store.save(state, {}, {});
  }
  /// Does what fit() does with a run that diverges. Returns false if the run ends.
  bool goes_on(Rollback& rollback) {
    const auto e = error_of([&] {
      rollback.diverged({"a cause", "a remedy"}, &store, [&] {
        ++kept;
        return "somewhere";
      });
    });
    CHECK(e.kind() == ErrorKind::Diverged);
    CHECK(has(e.what(), "training diverged: a cause"));
    return rollback.run(e, &store, rate, [&](const std::string& path) {
      ++loaded;
      rollback.load_state(load_checkpoint(path).at("loop"));
    });
  }
};

}  // namespace

TEST_CASE("a run goes back twice, with a tenth of the rate each time, and then ends with its broken state written") {
  Diverging run;
  Rollback rollback(true, run.toy.strategy->ranks());
  run.save(rollback);
  CHECK(run.goes_on(rollback));
  CHECK(run.rate.factor() == doctest::Approx(0.1));
  CHECK(run.goes_on(rollback));  // counts, although the checkpoint has no rollback
  CHECK(run.rate.factor() == doctest::Approx(0.01));
  CHECK(run.kept == 0);
  CHECK_FALSE(run.goes_on(rollback));
  CHECK(run.kept == 1);
  CHECK(run.loaded == 2);
  CHECK(rollback.state().integer("rollbacks", "loop") == 2);
}

TEST_CASE("a run that does not go back keeps its broken state") {
  Diverging run;
  Rollback off(false, run.toy.strategy->ranks()), nowhere(true, run.toy.strategy->ranks());
  CHECK_FALSE(run.goes_on(nowhere));
  run.save(off);
  CHECK_FALSE(run.goes_on(off));
  CHECK(run.kept == 2);
  CHECK(run.loaded == 0);
  CHECK(run.rate.factor() == 1);
}
