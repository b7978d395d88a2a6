#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/tools/align/compare.hpp"
#include "tools/align/compared_runs.hpp"
#include "tools/align/crafted_dump.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using Cause = Divergence::Cause;

TEST_CASE("NaN on both sides proves nothing; on one side it is found, with its own cause") {
  for (const auto* task : {"tensor", "statistics"}) {
    CAPTURE(task);
    const DumpOptions how{.task = task};
    for (const auto& facts : {std::map<std::string, std::string>{}, kElsewhere}) {
      Runs runs;
      const auto both =
          compare_dumps(runs.run("a", {.in_net = kNanWeight, .facts = facts}, how), runs.run("b", {.in_net = kNanWeight}, how));
      CAPTURE(explained(both));
      CHECK_FALSE(both.agrees);
      CHECK((both.first.cause == Cause::NotProven));
      CHECK(both.first.layer == "norm");
      CHECK_FALSE(both.first.within_tolerance);
      CHECK(has(both.first.sentence, "both runs have NaN from the weights of norm"));
      CHECK(has(both.first.sentence, "prove nothing"));
      CHECK(has(to_text(both), "Nothing is proven"));
    }
    const auto one = with_fault({.in_net = kNanWeight}, how);
    CAPTURE(explained(one));
    CHECK_FALSE(one.agrees);
    CHECK(one.first.layer == "norm");
    CHECK(has(explained(one), "not finite in A only"));
    CHECK_FALSE(has(explained(one), "shape"));
    CHECK_FALSE(has(explained(one), "zero on one side"));  // although the biases are zero: NaN has no magnitude
    // a weight of zeros compared with NaN
    Runs runs;
    const auto zero = [](CompareNet& net) {
      const at::NoGradGuard no_grad;
      net.norm->weight.zero_();
    };
    const auto against = compare_dumps(runs.run("a", {.in_net = zero}, how), runs.run("b", {.in_net = kNanWeight}, how));
    CHECK(has(explained(against), "not finite in B only"));
    CHECK_FALSE(has(explained(against), "missing in the checkpoint"));
  }
}

TEST_CASE("a loss that is not finite on both sides proves nothing, as in histories") {
  Runs runs;
  const auto result = compare_dumps(runs.run("a", {.loss = 1e39}), runs.run("b", {.loss = 1e39}));
  CHECK_FALSE(result.agrees);
  CHECK((result.first.cause == Cause::NotProven));
}

TEST_CASE("a difference is reported before later NaN") {
  Runs runs;
  const auto late = [](CompareNet& net) { net.head->bias.mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN()); };
  const auto result = compare_dumps(runs.run("a", {.in_gradients = late, .input = 1.5}), runs.run("b", {.in_gradients = late}));
  CHECK((result.first.cause == Cause::Input));
  CHECK(has(explained(result), "both runs have NaN from the gradients of head"));
}

TEST_CASE("masks of -inf, NaN that is masked, and steps that the loss scale skips raise no alarm") {
  const auto run = [](const std::filesystem::path& dir, double loss, const std::string& facts) {
    CraftedDump dump(dir, facts);
    const auto scores = dump.tensor("scores.pt", at::tensor({1.0, -INFINITY, 2.0}, at::kFloat), "[3]");
    const auto masked = dump.tensor("masked.pt", at::tensor({1.0, NAN, 2.0}, at::kFloat), "[3]");
    dump.add("Module.scores.Layer.forward.0", scores);
    dump.add("Module.masked.Layer.forward.0", masked, scores);
    dump.add("Module.loss.Loss.forward.0", dump.tensor("loss.pt", at::full({}, loss, at::kFloat), "[]"));
    dump.add_backward("Module.masked.Layer.backward.0", dump.tensor("gradient.pt", at::tensor({1.0, NAN, 2.0}, at::kFloat), "[3]"));
    return dump.write();
  };
  const TempDir dir;
  const std::string scaled = R"("loss_scale": 65536.0)";
  const auto fine = compare_dumps(run(dir / "a", 0.5, scaled), run(dir / "b", 0.5, scaled));
  CAPTURE(to_text(fine));
  CHECK(fine.agrees);
  CHECK(has(to_text(fine), "do not reach the loss"));
  CHECK_FALSE(compare_dumps(run(dir / "c", 0.5, ""), run(dir / "d", 0.5, "")).agrees);  // without a scaler these gradients are not skipped
  CHECK_FALSE(compare_dumps(run(dir / "e", NAN, scaled), run(dir / "f", NAN, scaled)).agrees);
}
