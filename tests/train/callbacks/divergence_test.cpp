#include "testing.hpp"

#include "train/callbacks/divergence.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

using npu_train::detail::Divergence;

namespace {

StepReport skipped() { return {.taken = false, .metrics = {{"loss", kInf}}, .loss_scale = 1}; }

}  // namespace

TEST_CASE("a loss that is not finite has diverged, in a step that was taken") {
  const Divergence divergence(3);
  for (const double loss : {kNaN, kInf}) {
    const auto found = divergence.check({.attempt = 7, .epoch = 2, .metrics = {{"loss", loss}}}, false, true);
    REQUIRE(found);
    CHECK(has(found->cause, "step 7 (epoch 2)"));
  }
  CHECK_FALSE(divergence.check({.metrics = {{"loss", 1e30}}}, false, true));
  CHECK_FALSE(divergence.check(skipped(), false, true));
}

TEST_CASE("overflows in a row at the floor of the scale have diverged") {
  Divergence divergence(3);
  for (int i = 0; i < 2; ++i) divergence.note_step(false);
  CHECK_FALSE(divergence.check(skipped(), /*at_floor=*/true, true));
  divergence.note_step(false);
  CHECK_FALSE(divergence.check(skipped(), /*at_floor=*/false, true));
  const auto found = divergence.check(skipped(), true, true);
  REQUIRE(found);
  CHECK(has(found->cause, "overflowed 3 times in a row"));
  CHECK(has(found->cause, "is at its floor of 1"));
  CHECK(has(divergence.check(skipped(), true, /*has_floor=*/false)->cause, "(grad_scaler.dynamic: false)"));
  divergence.note_step(true);
  divergence.note_step(false);
  CHECK_FALSE(divergence.check(skipped(), true, true));
}

TEST_CASE("an explained overflow gives the finding its cause and remedy, until a step is taken") {
  Divergence divergence(1);
  OverflowReport report;
  report.source = {.phase = "forward", .layer = "head", .op = "linear"};
  report.advice = {"do this", "do that"};
  divergence.note_overflow(report);
  divergence.note_step(false);
  const auto found = divergence.check(skipped(), true, true);
  REQUIRE(found);
  CHECK(has(found->cause, "; cause: " + report.source.str()));
  CHECK(found->remedy == "do this; or do that");
  divergence.note_step(true);
  divergence.note_step(false);
  CHECK_FALSE(has(divergence.check(skipped(), true, true)->cause, "cause:"));
}

TEST_CASE("the number of overflows in a row is in the checkpoint") {
  Divergence divergence(2), resumed(2);
  divergence.note_step(false);
  CHECK(divergence.state().integer("skip_streak", "loop") == 1);
  resumed.load_state(divergence.state());
  resumed.note_step(false);
  CHECK(resumed.check(skipped(), true, true));
}

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
  CHECK(run.goes_on(rollback));  // the rollback counts, although the checkpoint has none
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
