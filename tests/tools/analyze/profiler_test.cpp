#include "testing.hpp"

#include <ATen/ATen.h>

#include <sstream>

#include "npu_train/io/json.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/tools/analyze/profiler.hpp"

using namespace npu_train;
using npu_train::testing::has;

namespace {

struct TinyStep {
  at::Tensor weight = at::randn({64, 32}).requires_grad_();
  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  Profiler profiler;

  explicit TinyStep(int64_t traced_windows = 0) : profiler(Device{}, named(weight), {.traced_windows = traced_windows, .clock = clock}) {}

  static ParameterSet named(const at::Tensor& weight) {
    ParameterSet parameters;
    parameters.add({.name = "head.weight", .value = weight});
    return parameters;
  }

  template <class Fn>
  void phase(Phase phase, int64_t attempt, Fn&& fn) {
    profiler.phase_begin(phase, attempt, 0);
    fn();
    profiler.phase_end(phase, attempt, 0);
  }

  void window(int64_t attempt) {
    at::Tensor loss;
    phase(Phase::DataWait, attempt, [&] { clock->advance(8); });
    clock->advance(1);  // between phases
    phase(Phase::Forward, attempt, [&] {
      clock->advance(2);
      loss = in_layer("act", at::linear(at::ones({16, 32}), weight), [](const at::Tensor& x) { return at::relu(x); }).sum();
    });
    phase(Phase::Backward, attempt, [&] {
      clock->advance(4);
      loss.backward();
    });
  }
};

const PhaseTime* time_of(const Profile& profile, Phase phase) {
  for (const auto& p : profile.phases)
    if (p.phase == phase) return &p;
  return nullptr;
}

}  // namespace

TEST_CASE("phases are summed over all windows but the first") {
  TinyStep tiny;
  tiny.phase(Phase::Validation, 0, [&] { tiny.clock->advance(50); });  // before the first window
  for (int64_t k = 0; k < 4; ++k) {
    if (k == 0) tiny.clock->advance(100);  // not counted
    tiny.window(k);
  }
  tiny.phase(Phase::DataWait, 4, [] {});  // there are no more data, so this is no window
  const auto profile = tiny.profiler.profile();
  CHECK(profile.windows == 3);
  REQUIRE(time_of(profile, Phase::DataWait) != nullptr);
  CHECK(time_of(profile, Phase::DataWait)->calls == 4);
  CHECK(time_of(profile, Phase::DataWait)->seconds == 3 * 8);
  CHECK(time_of(profile, Phase::Forward)->calls == 3);
  CHECK(time_of(profile, Phase::Forward)->seconds == 3 * 2);
  CHECK(time_of(profile, Phase::Backward)->seconds == 3 * 4);
  CHECK(time_of(profile, Phase::Validation) == nullptr);
  REQUIRE(profile.phases.size() == 3);
  CHECK(profile.phases[0].phase == Phase::DataWait);  // the longest comes first
  CHECK(profile.phases[1].phase == Phase::Backward);
  CHECK(profile.first.value() == 15);
  CHECK(profile.seconds == 3 * 15);
  CHECK(profile.between() == 3 * 1);
  CHECK(profile.events.empty());
  CHECK(!profile.synchronised);
}

TEST_CASE("a run with one window is reported, and so is one without any") {
  TinyStep tiny;
  CHECK(tiny.profiler.profile().windows == 0);
  CHECK(has(to_text(tiny.profiler.profile()), "0 windows"));
  tiny.window(7);  // a resumed run's attempts do not begin at 0
  const auto profile = tiny.profiler.profile();
  CHECK(profile.windows == 1);
  CHECK(!profile.first.has_value());
}

TEST_CASE("a phase inside a phase counts once, and an error ends its phase") {
  TinyStep tiny;
  tiny.window(0);
  tiny.phase(Phase::Validation, 1, [&] {
    tiny.clock->advance(3);
    tiny.phase(Phase::Callbacks, 1, [&] { tiny.clock->advance(30); });
  });
  tiny.profiler.phase_begin(Phase::Forward, 1, 0);
  tiny.profiler.phase_error(Phase::Forward, 1, 0, nullptr);
  const auto profile = tiny.profiler.profile();
  CHECK(time_of(profile, Phase::Callbacks)->seconds == 30);
  CHECK(time_of(profile, Phase::Validation)->seconds == 3);
  CHECK(time_of(profile, Phase::Forward)->calls == 1);
}

TEST_CASE("a trace holds operators and layers with their memory, and is what trace viewers read") {
  TinyStep tiny(2);
  for (int64_t k = 0; k < 5; ++k) tiny.window(k);
  const auto profile = tiny.profiler.profile();
  CHECK(profile.windows == 2);  // windows 3 and 4, since window 0 is the first one, and 1 and 2 are traced
  bool linear = false, layer = false, backward = false;
  for (const auto& event : profile.events) {
    CHECK((event.window == 1 || event.window == 2));
    CHECK(event.bytes >= 0);
    if (event.name == "linear") {
      linear = true;
      CHECK(event.layer == "head");
      CHECK(event.kind == TraceEvent::Kind::Operator);
      CHECK(event.bytes >= 16 * 64 * 4);
    }
    layer |= event.kind == TraceEvent::Kind::Layer && event.name == "act";
    backward |= event.kind == TraceEvent::Kind::Operator && event.phase == Phase::Backward;
  }
  CHECK(linear);
  CHECK(layer);
  CHECK(backward);

  std::ostringstream out;
  write_chrome_trace(profile, out);
  const auto trace = parse_json(out.str(), "trace");
  std::vector<double> ends;  // end times of the operators in their lane, where no two may overlap
  size_t stretches = 0, counters = 0;
  for (const auto& event : trace.at("traceEvents", "trace").items("trace")) {
    const auto kind = event.at("ph", "event").text("ph");
    counters += kind == "C";
    if (kind != "X") continue;
    ++stretches;
    CHECK(event.at("dur", "event").number("dur") >= 0);
    if (event.at("tid", "event").integer("tid") != 3) continue;
    const auto begin = event.at("ts", "event").number("ts");
    if (!ends.empty()) CHECK(begin >= ends.back() - 1e-3);
    ends.push_back(begin + event.at("dur", "event").number("dur"));
  }
  CHECK(stretches == profile.events.size());
  CHECK(counters == profile.events.size());

  const auto json = to_json(profile);
  CHECK(json.find("operators") != nullptr);
  CHECK(has(json.dump(), "\"head\""));
  CHECK(has(to_html(profile), "<svg"));
  CHECK(has(to_text(profile), "memory kept"));
}

TEST_CASE("of a run of one window that one is traced") {
  TinyStep tiny(3);
  tiny.window(0);
  const auto profile = tiny.profiler.profile();
  CHECK(!profile.first);
  CHECK(std::any_of(profile.events.begin(), profile.events.end(), [](const TraceEvent& e) { return e.name == "linear"; }));
  CHECK(has(to_text(profile), "linear"));
  CHECK(has(to_text(profile), "There was only one window"));
  CHECK(!has(to_text(profile), "traced window(s)"));
}

TEST_CASE("advice names what stands out, and nothing else") {
  Profile profile{.device = "cpu", .windows = 10, .seconds = 10};
  profile.phases = {{Phase::Forward, 10, 5}, {Phase::Backward, 10, 4.9}};
  CHECK(advice(profile).empty());
  profile.phases = {{Phase::DataWait, 10, 4}, {Phase::Forward, 10, 3}, {Phase::Backward, 10, 3}};
  REQUIRE(advice(profile).size() == 1);
  CHECK(has(advice(profile)[0], "40 %"));
  CHECK(has(advice(profile)[0], "data.num_workers"));
  profile.phases = {{Phase::Forward, 10, 5}};
  REQUIRE(advice(profile).size() == 1);
  CHECK(has(advice(profile)[0], "outside all phases"));
}

TEST_CASE("the command of a device's own profiler runs this very process") {
  CHECK(has(profiler_command({"cuda", 0}), "nsys profile"));
  CHECK(has(profiler_command({"cuda", 0}), "test_analyze"));
  CHECK(has(profiler_command({"npu", 0}), "msprof"));
  CHECK(profiler_command({"cpu", 0}).empty());
  CHECK(profiler_command({"npu", 0}, "train_app c.yaml device=npu:0") ==
        "msprof --msproftx=on --output=./msprof train_app c.yaml device=npu:0");
}
