#include "testing.hpp"

#include "train/callbacks/divergence.hpp"

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
