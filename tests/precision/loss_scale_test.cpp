#include "testing.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "npu_train/precision/loss_scale.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::kInf;

namespace {

struct Row {
  bool found_inf;
  double scale;
  int64_t tracker;
  int64_t streak;
};

void run(const char* name, LossScaleOptions options, const std::vector<Row>& rows) {
  CAPTURE(name);
  LossScale s(options);
  CHECK(s.scale() == options.init_scale);
  CHECK(s.growth_tracker() == 0);
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    s.update(rows[i].found_inf);
    CHECK(s.scale() == rows[i].scale);
    CHECK(s.growth_tracker() == rows[i].tracker);
    CHECK(s.skip_streak() == rows[i].streak);
  }
}

}  // namespace

TEST_CASE("defaults are torch's") {
  const LossScale s;
  CHECK(s.scale() == 65536);
  CHECK(s.options().growth_factor == 2);
  CHECK(s.options().backoff_factor == 0.5);
  CHECK(s.options().growth_interval == 2000);
  CHECK(s.options().min_scale == 0x1p-126);  // torch has none; below it the inverse is not finite
  CHECK(s.options().max_scale == kInf);
  CHECK_FALSE(s.at_floor());
}

TEST_CASE("state table") {
  run("growth exactly after the interval", {.init_scale = 8, .growth_interval = 3},
      {{false, 8, 1, 0}, {false, 8, 2, 0}, {false, 16, 0, 0}, {false, 16, 1, 0}, {false, 16, 2, 0}, {false, 32, 0, 0}});
  run("interval of one", {.init_scale = 8, .growth_interval = 1}, {{false, 16, 0, 0}, {false, 32, 0, 0}});
  run("backoff resets the tracker", {.init_scale = 8, .growth_interval = 3},
      {{false, 8, 1, 0}, {false, 8, 2, 0}, {true, 4, 0, 1}, {false, 4, 1, 0}, {false, 4, 2, 0}, {false, 8, 0, 0}});
  run("inf every step, no floor", {.init_scale = 8, .growth_interval = 2},
      {{true, 4, 0, 1}, {true, 2, 0, 2}, {true, 1, 0, 3}, {true, 0.5, 0, 4}});
  run("inf every step, floor", {.init_scale = 4, .growth_interval = 2, .min_scale = 1},
      {{true, 2, 0, 1}, {true, 1, 0, 2}, {true, 1, 0, 3}, {true, 1, 0, 4}});
  run("floor that is no power", {.init_scale = 4, .min_scale = 3}, {{true, 3, 0, 1}, {true, 3, 0, 2}});
  run("cap", {.init_scale = 8, .growth_interval = 1, .max_scale = 24},
      {{false, 16, 0, 0}, {false, 24, 0, 0}, {false, 24, 0, 0}, {true, 12, 0, 1}});
  run("streaks begin again after a clean step", {.init_scale = 8}, {{true, 4, 0, 1}, {true, 2, 0, 2}, {false, 2, 1, 0}, {true, 1, 0, 1}});
  run("other factors", {.init_scale = 100, .growth_factor = 1.5, .backoff_factor = 0.25, .growth_interval = 2},
      {{false, 100, 1, 0}, {false, 150, 0, 0}, {true, 37.5, 0, 1}});
  run("static", {.init_scale = 128, .growth_interval = 1, .dynamic = false},
      {{false, 128, 0, 0}, {true, 128, 0, 1}, {true, 128, 0, 2}, {false, 128, 0, 0}});
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

TEST_CASE("a state resumes inside a growth interval") {
  const LossScaleOptions options{.init_scale = 8, .growth_interval = 5};
  LossScale whole(options), first(options);
  const bool found[] = {true, true, false, false, false, false, false, true, false, false};
  for (int cut = 0; cut < 10; ++cut) {
    CAPTURE(cut);
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
  s.load_state({.scale = 0.25});
  CHECK(s.scale() == 1);
}

TEST_CASE("impossible states are refused and change nothing") {
  LossScale s;
  s.update(true);
  const auto before = s.state();
  for (const LossScaleState bad : {LossScaleState{.scale = 0}, LossScaleState{.scale = -1}, LossScaleState{.scale = kInf},
                                   LossScaleState{.scale = std::numeric_limits<double>::quiet_NaN()},
                                   LossScaleState{.scale = 1, .growth_tracker = -1}, LossScaleState{.scale = 1, .skip_streak = -1}}) {
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
