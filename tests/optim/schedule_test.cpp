#include "testing.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "npu_train/optim/schedule.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

namespace {

std::unique_ptr<LrSchedule> make(const std::string& name, const std::string& options, const ScheduleContext& context = {90, 9000, 0.1}) {
  ScheduleRegistry registry("learning-rate schedule");
  add_builtin_schedules(registry);
  return registry.make({.name = name, .options = parse_yaml(options, "test"), .mark = {}}, "lr_scheduler", context);
}

}  // namespace

TEST_CASE("the sample configuration: 0.1 in epochs 0 to 29, 0.01 from epoch 30, 0.001 from epoch 60") {
  const auto s = make("step", "{step_size: 30, gamma: 0.1, interval: epoch}");
  CHECK(s->by_epoch());
  for (int epoch = 0; epoch < 90; ++epoch) {
    CAPTURE(epoch);
    CHECK(0.1 * s->factor(epoch) == doctest::Approx(epoch < 30 ? 0.1 : epoch < 60 ? 0.01 : 0.001).epsilon(1e-12));
  }
}

TEST_CASE("the curves against PyTorch") {
  std::ifstream in(std::string(NPU_TRAIN_SOURCE_DIR) + "/tests/fixtures/optim_reference.json");
  REQUIRE(in.good());
  const auto data = nlohmann::json::parse(in);
  const double tolerance = data["tolerance"]["factor"];
  int compared = 0;
  for (const auto& c : data["schedulers"]) {
    const std::string name = c["name"];
    const auto& o = c["options"];
    std::function<double(double)> f;
    if (name == "constant") f = [](double) { return 1.0; };
    if (name == "step") f = [&](double t) { return schedule::step(t, o["step_size"], o["gamma"]); };
    if (name == "multistep") f = [&](double t) { return schedule::multistep(t, o["milestones"].get<std::vector<int64_t>>(), o["gamma"]); };
    if (name == "exponential") f = [&](double t) { return schedule::step(t, 1, o["gamma"]); };
    if (name == "cosine" || name == "cosine_floor") f = [&](double t) { return schedule::cosine(t, o["total"], o["min_factor"]); };
    if (name == "linear_warmup") f = [&](double t) { return schedule::warmup(t, o["total"], o["start_factor"]); };
    if (name == "linear_decay") f = [&](double t) { return schedule::linear(t, o["total"], o["end_factor"]); };
    if (name == "polynomial") f = [&](double t) { return schedule::polynomial(t, o["total"], o["power"], 0); };
    if (name == "one_cycle")
      f = [&](double t) { return schedule::one_cycle(t, o["total"], o["pct_start"], o["div_factor"], o["final_div_factor"]); };
    std::unique_ptr<LrSchedule> whole;
    if (name == "warmup_cosine") {
      whole = make("cosine", "{interval: step, warmup_steps: 4, warmup_start_factor: 0.1, T_max: 12, min_lr: 0.05}", {-1, -1, 1.0});
      f = [&](double t) { return whole->factor(t); };
    }
    if (!f) continue;  // this form is not built in
    ++compared;
    // After its end, PyTorch's recursive cosine rises again; ours stays.
    const size_t end = name == "warmup_cosine" ? 17 : c["factors"].size();
    for (size_t t = 0; t < end; ++t) {
      CAPTURE(name);
      CAPTURE(t);
      CHECK(std::abs(f(static_cast<double>(t)) - c["factors"][t].get<double>()) < tolerance);
    }
  }
  CHECK(compared == 11);
}

TEST_CASE("known points") {
  CHECK(schedule::cosine(0, 10, 0.2) == 1);
  CHECK(schedule::cosine(5, 10, 0.2) == doctest::Approx(0.6));
  CHECK(schedule::cosine(10, 10, 0.2) == doctest::Approx(0.2));
  CHECK(schedule::cosine(99, 10, 0.2) == doctest::Approx(0.2));
  CHECK(schedule::linear(5, 10, 0) == 0.5);
  CHECK(schedule::linear(20, 10, 0) == 0);
  CHECK(schedule::polynomial(5, 10, 2, 0) == 0.25);
  CHECK(schedule::multistep(9, {10, 20}, 0.1) == 1);
  CHECK(schedule::multistep(10, {10, 20}, 0.1) == 0.1);
  CHECK(schedule::multistep(20, {10, 20}, 0.1) == doctest::Approx(0.01));
  CHECK(schedule::step(29.9, 30, 0.1) == 1);
  CHECK(schedule::warmup(0, 5, 0.2) == 0.2);
  CHECK(schedule::warmup(5, 5, 0.2) == 1);
  CHECK(schedule::warmup(3, 0, 0.2) == 1);
  CHECK(schedule::one_cycle(2, 10, 0.3, 25, 1e4) == doctest::Approx(1));
  CHECK(schedule::one_cycle(9, 10, 0.3, 25, 1e4) == doctest::Approx(1 / 25e4));
  CHECK(schedule::one_cycle(50, 10, 0.3, 25, 1e4) == doctest::Approx(1 / 25e4));
}

TEST_CASE("curves span the rest of the run after the warm-up") {
  const auto s = make("cosine", "{warmup_epochs: 10, warmup_start_factor: 0.1}");
  CHECK(s->factor(0) == doctest::Approx(0.1));
  CHECK(s->factor(5) == doctest::Approx(0.55));
  CHECK(s->factor(10) == doctest::Approx(1));
  CHECK(s->factor(50) == doctest::Approx(0.5));
  CHECK(s->factor(90) == doctest::Approx(0).epsilon(1e-12));
  const auto steps = make("linear", "{interval: step, min_lr: 0.05}");
  CHECK_FALSE(steps->by_epoch());
  CHECK(steps->factor(4500) == doctest::Approx(0.75));
  CHECK(steps->factor(9000) == doctest::Approx(0.5));
  CHECK(make("polynomial", "{total_iters: 10, power: 2}")->factor(5) == doctest::Approx(0.25));
  CHECK(make("one_cycle", "{max_lr: 0.2, total_iters: 10}")->factor(2) == doctest::Approx(2));
  CHECK(make("one_cycle", "{}")->factor(0) == doctest::Approx(1.0 / 25));
}

TEST_CASE("wsd takes its lengths from the run") {
  const auto s = make("wsd", "{warmup_epochs: 10, warmup_start_factor: 0}");  // 10 epochs of warm-up, 71 stable ones, 9 of decay
  CHECK(s->factor(5) == doctest::Approx(0.5));
  CHECK(s->factor(81) == doctest::Approx(1));
  CHECK(s->factor(84) == doctest::Approx(2.0 / 3));
  CHECK(s->factor(90) == doctest::Approx(0).epsilon(1e-12));
}

TEST_CASE("milestones are counted from the start, with the warm-up on top") {
  const auto s = make("multistep", "{milestones: [3, 20], gamma: 0.1, warmup_epochs: 10, warmup_start_factor: 0}");
  CHECK(s->factor(2) == doctest::Approx(0.2));
  CHECK(s->factor(5) == doctest::Approx(0.05));
  CHECK(s->factor(15) == doctest::Approx(0.1));
  CHECK(s->factor(20) == doctest::Approx(0.01));
  CHECK(make("constant", "{warmup_epochs: 4, warmup_start_factor: 0.5}")->factor(2) == doctest::Approx(0.75));
  CHECK(make("constant", "{}")->factor(1e9) == 1);
}

TEST_CASE("every schedule of the registry is finite and not negative over a run and beyond") {
  ScheduleRegistry registry("learning-rate schedule");
  add_builtin_schedules(registry);
  CHECK(registry.names() == std::vector<std::string>{"constant", "cosine", "cosine_restarts", "exponential", "linear", "multistep",
                                                     "one_cycle", "plateau", "polynomial", "step", "wsd"});
  for (const auto& name : registry.names())
    for (const ScheduleContext context : {ScheduleContext{90, 9000, 0.1}, ScheduleContext{1, 1, 0.1}, ScheduleContext{2, 2, 0.0}}) {
      CAPTURE(name);
      const auto s = make(name, "{}", context);
      for (double t = 0; t < 200; t += 0.5) {
        CHECK(std::isfinite(s->factor(t)));
        CHECK(s->factor(t) >= 0);
        CHECK(s->factor(t) <= 1 + 1e-12);
      }
    }
}

TEST_CASE("invalid options are refused with a hint") {
  const auto usage = [](const std::string& name, const std::string& options, const char* named, ScheduleContext context = {90, 9000, 0.1}) {
    const auto e = error_of([&] { make(name, options, context); });
    CAPTURE(e.what());
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find(named) != std::string::npos);
  };
  usage("cosine", "{interval: step, warmup_epochs: 5}", "warmup_steps");
  usage("cosine", "{interval: epoch, warmup_steps: 500}", "warmup_epochs");
  usage("cosine", "{}", "trainer.max_epochs", {-1, -1, 0.1});
  usage("linear", "{interval: step}", "trainer.max_steps", {90, -1, 0.1});
  usage("cosine", "{interval: step}", "in steps, since the data are a stream; hint: set T_max or trainer.max_steps", {90, -1, 0.1});
  usage("one_cycle", "{}", "total_iters", {-1, -1, 0.1});
  usage("cosine", "{min_lr: 0.5}", "min_lr");
  usage("step", "{step_size: 0}", "step_size");
  usage("step", "{interval: minute}", "interval");
  usage("cosin", "{}", "cosine");
  usage("exponential", "{gamma: 1.5}", "gamma");
  usage("cosine_restarts", "{T_0: 0}", "T_0");
  usage("cosine_restarts", "{T_mult: 0}", "T_mult");
  usage("wsd", "{}", "trainer.max_epochs", {-1, -1, 0.1});
  usage("wsd", "{decay: square}", "1-sqrt");
  usage("plateau", "{factor: 1}", "factor");
  usage("plateau", "{threshold_mode: share}", "threshold_mode");
  usage("plateau", "{min_lr: 1}", "min_lr");
  usage("cosine", "{eta_min: 0.1}", "min_lr");
  CHECK(make("cosine", "{T_max: 5}", {-1, -1, 0.1})->factor(5) == doctest::Approx(0));
}

TEST_CASE("the rate after a start moves to a constant one, as torch.optim.swa_utils.SWALR does") {
  for (const bool cosine : {true, false}) {
    const LrSchedule before([](double t) { return 1 / (1 + t); }, true, 2);
    const auto schedule = before.then(6, 4, 0.05, cosine);
    CHECK(schedule.by_epoch());
    CHECK(schedule.warmup() == 2);
    // As SWALR.get_lr: computes the initial rate from the rate of the last step, and weights it anew.
    const auto anneal = [cosine](double t) { return cosine ? (1 - std::cos(std::acos(-1.0) * t)) / 2 : t; };
    double lr = before.factor(6);
    for (int step = 0; step <= 8; ++step) {
      CAPTURE(step);
      if (step > 0) {
        const double last = anneal(std::clamp((step - 1) / 4.0, 0.0, 1.0)), now = anneal(std::clamp(step / 4.0, 0.0, 1.0));
        const double initial = last == 1 ? 0.05 : (lr - last * 0.05) / (1 - last);
        lr = 0.05 * now + initial * (1 - now);
      }
      CHECK(schedule.factor(6 + step) == doctest::Approx(lr).epsilon(1e-12));
    }
    for (const double t : {0.0, 3.0, 5.0}) CHECK(schedule.factor(t) == before.factor(t));
    CHECK(before.then(6, 0, 0.05, cosine).factor(6) == doctest::Approx(0.05));
  }
}
