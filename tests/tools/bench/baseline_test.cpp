#include "testing.hpp"

#include <cmath>
#include <fstream>

#include "engine/short_run.hpp"
#include "npu_train/tools/bench/baseline.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns a baseline whose curve and times the test chooses.
Baseline made(double loss_factor = 1, double seconds = 0.1, double acc1 = 90) {
  Baseline b{.model = "m", .device = "cpu", .precision = "32-true", .parameters = 10, .effective_batch = 8};
  for (int64_t i = 1; i <= 40; ++i) {
    b.steps.push_back(i);
    b.losses.push_back(loss_factor * 2.0 / std::sqrt(static_cast<double>(i)));
    b.lrs.push_back(0.1);
    b.step_seconds.seconds.push_back(seconds * (1 + 0.1 * static_cast<double>(i % 5)));
  }
  b.val = {{"loss", 0.5}, {"acc1", acc1}};
  return b;
}

}  // namespace

TEST_CASE("a baseline holds what a run did, and comes back from its file as it was") {
  const auto b = record_baseline(short_run());
  CHECK(b.steps.size() == 12);
  CHECK(b.step_seconds.size() == 10);  // without two steps of warm-up
  CHECK(b.device == "cpu");
  CHECK(b.effective_batch == 8);
  CHECK(b.samples_per_second() > 0);
  CHECK(b.peak_memory > 0);
  CHECK(b.peak_memory_of == "process");
  CHECK(b.val.front().first == "loss");
  CHECK(b.environment.contains("libtorch"));
  TempDir dir;
  save_json(dir / "b.json", to_json(b));
  const auto back = read_baseline(dir / "b.json");
  CHECK(back.losses == b.losses);
  CHECK(back.step_seconds.seconds == b.step_seconds.seconds);
  CHECK(back.val == b.val);
  CHECK(back.environment == b.environment);
  CHECK(to_yaml(back.config) == to_yaml(b.config));

  const auto again = compare_baselines(record_baseline(short_run()), back);
  CHECK(again.history.max_relative == 0);
  CHECK(again.accuracy_passed());
  CHECK(again.config.empty());
}

TEST_CASE("a run too short for a speed is refused") {
  auto config = short_run();
  config.trainer.max_steps = 2;
  CHECK(has(error_of([&] { record_baseline(config); }).what(), "warm-up"));
  config.trainer.fast_dev_run = true;
  const std::string said = error_of([&] { record_baseline(config); }).what();
  CHECK(has(said, "hint: trainer.fast_dev_run=false"));
}

TEST_CASE("another training than the reference's is refused before it is run") {
  auto reference = made();
  auto config = short_run();
  config.trainer.max_epochs = 1'000'000;
  CHECK(has(error_of([&] { record_baseline(config, builtin_parts(), &reference); }).what(), "not the same training"));
  for (const double bad : {kNaN, -1.0}) {
    CHECK(has(error_of([&] { check_options({.metric_points = bad}); }).what(), "accuracy-drop"));
    CHECK(has(error_of([&] { check_options({.least_speed = bad}); }).what(), "least-speed"));
    CHECK(has(error_of([&] { check_options({.history = {.mean_rtol = bad}}); }).what(), "loss-rtol"));
  }
  check_options({});
}

TEST_CASE("memory is labelled, and that of a process is not compared with that of tensors") {
  auto now = made(), reference = made();
  now.peak_memory = 300, reference.peak_memory = 100;
  now.peak_memory_of = reference.peak_memory_of = "tensors";
  CHECK(compare_baselines(now, reference).memory.value() == 3);
  CHECK(has(to_text(compare_baselines(now, reference)), "memory: 3 times the reference's peak"));
  reference.peak_memory_of = "process";
  const auto unlike = compare_baselines(now, reference);
  CHECK(!unlike.memory);
  CHECK(has(to_text(unlike), "peak memory of the process"));
  CHECK(has(to_text(unlike), "memory is not compared: it is that of the tensors here, and that of the process on the other side"));
  CHECK(to_json(unlike).at("memory", "json").is_null());
  auto older = to_json(reference).dump();  // older files do not have this key
  older.replace(older.find("peak_memory_of"), std::string("peak_memory_of").size(), "another");
  TempDir dir;
  std::ofstream(dir / "older.json") << older;
  CHECK(read_baseline(dir / "older.json").peak_memory_of == "process");
}

TEST_CASE("accuracy: losses of the steps and metrics of the validation, each with its own bound") {
  CHECK(compare_baselines(made(), made()).accuracy_passed());
  const auto curve = compare_baselines(made(1.05), made());
  CHECK(!curve.accuracy_passed());
  CHECK(!curve.history.agrees);
  CHECK(has(to_text(curve), "accuracy: FAILED"));
  CHECK(compare_baselines(made(1.05), made(), {.history = {.mean_rtol = 0.1}}).accuracy_passed());
  CHECK(compare_baselines(made(1, 0.1, 89.6), made()).accuracy_passed());
  const auto worse = compare_baselines(made(1, 0.1, 89.4), made());
  CHECK(!worse.accuracy_passed());
  CHECK(worse.history.agrees);
  CHECK(compare_baselines(made(1, 0.1, 95), made()).accuracy_passed());  // a better one is no failure
  CHECK(compare_baselines(made(1, 0.1, 89.4), made(), {.metric_points = 1}).accuracy_passed());
  CHECK(!compare_baselines(made(1, 0.1, kNaN), made()).accuracy_passed());
  auto without = made();
  without.val.clear();
  CHECK(has(to_text(compare_baselines(without, made())), "losses of the steps alone"));
}

TEST_CASE("speed: a verdict only where the scatter allows one") {
  const auto same = compare_baselines(made(1, 0.1), made(1, 0.1));
  CHECK(same.speed == 1);
  CHECK(same.speed_low < 1);
  CHECK(same.speed_high > 1);
  CHECK(same.speed_passed());
  CHECK(has(to_text(same), "no difference larger than the scatter"));
  const auto slow = compare_baselines(made(1, 0.2), made(1, 0.1));
  CHECK(slow.speed == doctest::Approx(0.5));
  CHECK(!slow.speed_passed());
  CHECK(has(to_text(slow), "too slow"));
  CHECK(compare_baselines(made(1, 0.2), made(1, 0.1), {.least_speed = 0.4}).speed_passed());
  CHECK(has(to_text(compare_baselines(made(1, 0.05), made(1, 0.1))), "faster"));
  auto few = made(1, 0.2);
  few.step_seconds.seconds.resize(5);
  const auto unjudged = compare_baselines(few, made(1, 0.1));
  CHECK(!unjudged.speed_judged());
  CHECK(unjudged.speed_passed());
  CHECK(has(to_text(unjudged), "not judged: 5 and 40 steps"));
  few.step_seconds.seconds.push_back(0.2);
  CHECK(!compare_baselines(few, made(1, 0.1)).speed_passed());
  CHECK(has(to_html(slow), "<svg"));
  CHECK(to_json(slow).at("speed_passed", "json").boolean("speed_passed") == false);
}

TEST_CASE("losses that differ from the first step on, on devices with random numbers of their own") {
  auto now = made(1.05), reference = made();
  now.device = "npu:0";
  const auto c = compare_baselines(now, reference);
  CHECK(has(to_text(c), "record both with rng=portable"));
  CHECK(has(to_text(c), "mean difference in the last quarter"));
  CHECK(has(c.accuracy_sentence(), "% in the last quarter"));
  now.config = parse_yaml("{rng: portable}", "now");
  CHECK(compare_baselines(now, reference).advice == "");
  now.device = "cpu";
  CHECK(compare_baselines(made(1.05), made()).advice == "");
  CHECK(has(compare_baselines(made(1, 0.1, 80), made()).accuracy_sentence(), "val/acc1 is worse by 10"));
}

TEST_CASE("the speed of a simulator is not judged, on either side") {
  for (const bool now_simulated : {true, false}) {
    auto now = made(1, 0.2), reference = made(1, 0.1);
    (now_simulated ? now : reference).device = "sim_npu:0";
    const auto c = compare_baselines(now, reference);
    CHECK_FALSE(c.speed_judged());
    CHECK(c.speed_passed());
    CHECK(has(to_text(c), "speed: not judged: sim_npu:0 computes on the host's processor"));
    CHECK(to_json(c).at("speed_judged", "json").boolean("") == false);
    CHECK(has(to_html(c), "does not represent a chip"));
  }
}

TEST_CASE("another training is refused, other settings are reported, other files are named") {
  auto other = made();
  other.parameters = 11;
  CHECK(has(error_of([&] { compare_baselines(made(), other); }).what(), "not the same training"));
  auto now = made(), reference = made();
  now.config = parse_yaml("{seed: 1, device: npu, optimizer: {lr: 0.1}}", "now");
  reference.config = parse_yaml("{seed: 1, device: cpu, optimizer: {lr: 0.2}}", "reference");
  const auto c = compare_baselines(now, reference);
  REQUIRE(c.config.size() == 1);
  CHECK(has(to_text(c), "optimizer.lr is 0.1 now and 0.2 in the reference"));
  CHECK(has(error_of([&] { compare_baselines(now, reference, {.least_speed = kNaN}); }).what(), "least-speed"));

  TempDir dir;
  save_json(dir / "x.json", Json::object({{"loss", Json::array({1.0})}}));
  CHECK(has(error_of([&] { read_baseline(dir / "x.json"); }).what(), "not a baseline"));
  auto broken = to_json(made());
  broken.set("step", Json::array({int64_t{1}}));
  save_json(dir / "y.json", broken);
  CHECK(has(error_of([&] { read_baseline(dir / "y.json"); }).what(), "1 steps, 40 losses"));
  CHECK(error_of([&] { read_baseline(dir / "none.json"); }).kind() == ErrorKind::Data);
}
