#include "testing.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "npu_train/precision/loss_scale.hpp"
#include "scale_table.hpp"

using namespace npu_train;
using npu_train::testing::check_scale_table;
using npu_train::testing::error_of;
using npu_train::testing::kInf;

namespace {

// Runs the state machine alone.
class PureScale {
 public:
  explicit PureScale(const LossScaleOptions& options) : scale_(options) {}
  bool attempt(bool overflow) {
    scale_.update(overflow);
    return !overflow;
  }
  double scale() const { return scale_.scale(); }
  int64_t tracker() const { return scale_.growth_tracker(); }
  int64_t streak() const { return scale_.skip_streak(); }

 private:
  LossScale scale_;
};

}  // namespace

TEST_CASE("defaults are torch's") {
  const LossScale s;
  CHECK(s.scale() == 65536);
  CHECK(s.options().growth_factor == 2);
  CHECK(s.options().backoff_factor == 0.5);
  CHECK(s.options().growth_interval == 2000);
  CHECK(s.options().min_scale == 0x1p-126);  // torch has no floor; below this one the inverse is not finite
  CHECK(s.options().max_scale == kInf);
  CHECK_FALSE(s.at_floor());
}

TEST_CASE("the table, by the state machine alone") {
  check_scale_table([](const LossScaleOptions& options) { return PureScale(options); });
}

TEST_CASE("hysteresis of one is torch's scale, bit for bit") {
  LossScale plain({.init_scale = 1000, .growth_interval = 3}), one({.init_scale = 1000, .growth_interval = 3, .hysteresis = 1});
  CHECK(LossScaleOptions().hysteresis == 1);
  double torch_scale = 1000;  // the scale by the rule of torch._amp_update_scale_
  int64_t torch_tracker = 0;
  for (int i = 0; i < 200; ++i) {
    const bool found = i % 7 == 3 || i % 11 == 4;
    plain.update(found), one.update(found);
    if (found) {
      torch_scale *= 0.5, torch_tracker = 0;
    } else if (++torch_tracker == 3) {
      torch_scale *= 2, torch_tracker = 0;
    }
    CHECK(plain.scale() == torch_scale);
    CHECK(plain.state() == one.state());
  }
}

TEST_CASE("the scale never leaves fp32") {
  LossScale s({.init_scale = 0x1p127, .growth_interval = 1});
  s.update(false);
  CHECK(s.scale() == 0x1p127);
  CHECK(s.growth_tracker() == 0);
}

TEST_CASE("at the floor") {
  LossScale s({.init_scale = 2, .min_scale = 1});
  CHECK_FALSE(s.at_floor());
  s.update(true);
  CHECK(s.at_floor());
  CHECK(LossScale({.init_scale = 2, .dynamic = false}).at_floor());
}

TEST_CASE("a state resumes inside a growth interval, and between the overflows of a hysteresis") {
  const bool found[] = {true, true, false, false, false, false, false, true, false, false};
  for (int run = 0; run < 20; ++run) {
    const int cut = run % 10;
    const LossScaleOptions options{.init_scale = 8, .growth_interval = 5, .hysteresis = 1 + run / 10};
    CAPTURE(run);
    LossScale a(options), b(options);
    for (int i = 0; i < 10; ++i) a.update(found[i]);
    LossScale before(options);
    for (int i = 0; i < cut; ++i) before.update(found[i]);
    b.load_state(before.state());
    CHECK(b.state() == before.state());
    for (int i = cut; i < 10; ++i) b.update(found[i]);
    CHECK(a.state() == b.state());
  }
}

TEST_CASE("a state of a run with other limits is brought inside") {
  LossScale s({.init_scale = 8, .growth_interval = 10, .min_scale = 1, .max_scale = 1024});
  s.load_state({.scale = 65536, .growth_tracker = 1500, .skip_streak = 2});
  CHECK(s.scale() == 1024);
  CHECK(s.skip_streak() == 2);
  CHECK(s.growth_tracker() == 9);
  LossScale fewer({.init_scale = 8, .hysteresis = 2});
  fewer.load_state({.scale = 8, .overflows = 3});
  fewer.update(true);
  CHECK(fewer.scale() == 4);
  s.load_state({.scale = 0.25});
  CHECK(s.scale() == 1);
}

TEST_CASE("impossible states are refused and change nothing") {
  LossScale s;
  s.update(true);
  const auto before = s.state();
  for (const LossScaleState bad :
       {LossScaleState{.scale = 0}, LossScaleState{.scale = -1}, LossScaleState{.scale = kInf},
        LossScaleState{.scale = std::numeric_limits<double>::quiet_NaN()}, LossScaleState{.scale = 1, .growth_tracker = -1},
        LossScaleState{.scale = 1, .skip_streak = -1}, LossScaleState{.scale = 1, .overflows = -1}}) {
    CHECK(error_of([&] { s.load_state(bad); }).kind() == ErrorKind::Checkpoint);
    CHECK(s.state() == before);
  }
}

TEST_CASE("impossible options are refused by name") {
  const auto message = [](LossScaleOptions o) {
    const auto e = error_of([&] { LossScale{o}; });
    CHECK(e.kind() == ErrorKind::Usage);
    return std::string(e.what());
  };
  CHECK(message({.init_scale = 0}).find("init_scale") != std::string::npos);
  CHECK(message({.init_scale = kInf}).find("init_scale") != std::string::npos);
  CHECK(message({.growth_factor = 1}).find("growth_factor") != std::string::npos);
  CHECK(message({.backoff_factor = 1}).find("backoff_factor") != std::string::npos);
  CHECK(message({.backoff_factor = 0}).find("backoff_factor") != std::string::npos);
  CHECK(message({.growth_interval = 0}).find("growth_interval") != std::string::npos);
  CHECK(message({.hysteresis = 0}).find("hysteresis") != std::string::npos);
  CHECK(message({.min_scale = -1}).find("min_scale") != std::string::npos);
  CHECK(message({.min_scale = 2, .max_scale = 1}).find("min_scale") != std::string::npos);
  CHECK(message({.init_scale = 65536, .max_scale = 1024}).find("init_scale") != std::string::npos);
}

TEST_CASE("without a floor the scale stays where its inverse is finite in fp32") {
  LossScale s({.init_scale = 1});
  for (int i = 0; i < 300; ++i) s.update(true);
  CHECK(s.scale() > 0);
  CHECK(std::isfinite(static_cast<float>(1 / s.scale())));
  CHECK(s.at_floor());
  LossScale again;
  again.load_state(s.state());
  CHECK(again.scale() == s.scale());
}
