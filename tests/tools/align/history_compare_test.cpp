#include "testing.hpp"

#include "tools/align/curves.hpp"

using namespace npu_train;
using npu_train::testing::any_has;
using npu_train::testing::curve;
using npu_train::testing::falling;
using npu_train::testing::has;
using npu_train::testing::kInf;
using npu_train::testing::kNaN;

TEST_CASE("history: what is not finite on both sides proves nothing") {
  for (const double value : {kNaN, kInf}) {
    const auto ends = curve(40, [value](int64_t i) { return i < 30 ? falling(i) : value; });
    const auto c = compare_histories(ends, ends);
    CHECK_FALSE(c.agrees);
    CHECK(c.first_unproven == 30);
    CHECK(has(c.sentences.at(0), "from step 30 on both losses are non-finite"));
    CHECK(has(c.likely.at(0), "both runs overflowed"));
    const auto all = compare_histories(curve(5, [value](int64_t) { return value; }), curve(5, [value](int64_t) { return value; }));
    CHECK((!all.agrees && all.first_unproven == 0));
    const auto once = curve(40, [value](int64_t i) { return i == 7 ? value : falling(i); });
    const auto d = compare_histories(once, once);
    CHECK_FALSE(d.agrees);
    CHECK(has(d.sentences.at(0), "at step 7 both losses are non-finite"));
  }
}

TEST_CASE("history: a learning rate alone decides, beyond rounding") {
  const auto rate = [](double at_30) { return curve(40, falling, [at_30](int64_t i) { return i == 30 ? at_30 : 0.1; }); };
  CHECK(compare_histories(rate(0.1 * (1 + 5e-7)), rate(0.1)).agrees);
  CHECK(compare_histories(rate(kNaN), rate(0.1)).agrees);  // not logged at that step
  CHECK(compare_histories(rate(0.11), rate(0.1), {.lr_rtol = 0.2}).agrees);
  for (const double other : {0.1 * (1 + 5e-6), 0.0, -0.1, kInf}) {
    const auto c = compare_histories(rate(other), rate(0.1));
    CHECK_FALSE(c.agrees);
    CHECK((c.first_lr == 30 && !c.first_unequal));
    CHECK(any_has(c.sentences, "the learning rates differ from step 30 on"));
  }
}

TEST_CASE("history: few common steps are reported, and the comparison is incomplete") {
  auto a = curve(1000, falling), b = a;
  for (auto& step : b.step) step += 990;
  const auto flat = [](History h) {
    h.loss.assign(h.loss.size(), 1.0);
    return h;
  };
  const auto c = compare_histories(flat(a), flat(b));
  CHECK((c.agrees && !c.complete));
  CHECK(has(c.sentences.at(0), "10 of 1,990 steps are common"));
  CHECK(compare_histories(a, a).complete);
  // the notes use B's numbers of steps
  const auto moved = compare_histories(flat(curve(20, falling)), flat(curve(30, falling)), {.shift = -5});
  CHECK(any_has(moved.notes, "B continues to step 29, A ends at step 24"));
  CHECK(any_has(moved.notes, "5 steps are logged by B only"));
}
