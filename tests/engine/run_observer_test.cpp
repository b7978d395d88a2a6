#include "testing.hpp"

#include "npu_train/engine/run_observer.hpp"

#include "engine/short_run.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct PulseOptions {
  int64_t stride = 10;
  static const ConfigTable<PulseOptions>& config_table() {
    static const auto table = ConfigTable<PulseOptions>("pulse").field("stride", &PulseOptions::stride, "steps between two", at_least(1));
    return table;
  }
};

// The calls that an observer gets from its run, in order.
using Calls = std::shared_ptr<std::vector<std::string>>;

class Pulse final : public RunObserver {
 public:
  Pulse(int64_t stride, Calls calls) : calls_(std::move(calls)) { note("made " + std::to_string(stride)); }
  ~Pulse() override { note("gone"); }
  void on_setup(const RunView& run) override {
    note("setup " + run.device.str() + " " + run.precision->name());
    CHECK((run.task != nullptr && run.optimizer != nullptr && run.loop != nullptr && run.strategy != nullptr));
    CHECK(run.model.module != nullptr);
    CHECK(run.resolved.find("trainer") != nullptr);
  }
  void on_start(const RunView&, const std::string& run_dir) override { note("start" + run_dir); }
  void on_fit_start(const RunView&) override { note("fit"); }
  void on_fit_end(const RunView& run, const std::string&, bool failed) override {
    note((failed ? "failed at " : "ended at ") + std::to_string(run.loop->global_step()));
  }
  std::optional<Error> explain(const RunView&, std::optional<FailedWindow>&, const Error& error) override {
    if (error.where() != "Callback") return std::nullopt;
    return Error(ErrorKind::Internal, "Pulse", std::string("explained: ") + error.what());
  }

 private:
  void note(const std::string& what) { calls_->push_back(what); }
  Calls calls_;
};

Parts with_pulse(const Calls& calls) {
  auto parts = builtin_parts();
  parts.observers.add_section<PulseOptions>(
      "pulse", "notes what a run does", [calls](const PulseOptions& options) { return std::make_unique<Pulse>(options.stride, calls); },
      [](const PulseOptions& options) { check(options.stride != 13, ErrorKind::Usage, "pulse.stride", "13 brings bad luck"); });
  return parts;
}

class Stumble final : public Callback {
  void on_step_end(TrainLoop&, const StepReport&) override { throw std::runtime_error("stumbled"); }
};

RunConfig bound(const std::string& yaml, const Parts& parts) { return bind_config(parse_yaml(yaml, "a.yaml"), parts); }

std::string refused(const std::string& yaml, const Parts& parts) {
  return error_of([&] { bound(yaml, parts); }).what();
}

}  // namespace

TEST_CASE("a section makes an observer, which sees the run from its setup to its end") {
  const auto calls = std::make_shared<std::vector<std::string>>();
  {
    auto config = short_run();
    config.trainer.max_steps = 2;
    config.sections["pulse"] = {{"stride", 5}};
    Trainer trainer(config, with_pulse(calls));
    trainer.fit();
  }
  CHECK((*calls == std::vector<std::string>{"made 5", "setup cpu 32-true", "start", "fit", "ended at 2", "gone"}));
}

TEST_CASE("without its section no observer is made, and one without a section always is") {
  const auto calls = std::make_shared<std::vector<std::string>>();
  auto config = short_run();
  config.trainer.max_steps = 1;
  auto parts = with_pulse(calls);
  Trainer(config, parts).fit();
  CHECK(calls->empty());
  parts.observers.add("always", "of every run", [calls] { return std::make_unique<Pulse>(0, calls); });
  Trainer(config, parts).setup();
  REQUIRE_FALSE(calls->empty());
  CHECK(calls->front() == "made 0");
}

TEST_CASE("an error that an observer explains reaches the caller with the explanation, after the end of the fit") {
  const auto calls = std::make_shared<std::vector<std::string>>();
  auto config = short_run();
  config.sections["pulse"] = ConfigNode::map();
  Trainer trainer(config, with_pulse(calls));
  trainer.add_callback(std::make_shared<Stumble>());
  const std::string text = error_of([&] { trainer.fit(); }).what();
  CHECK_MESSAGE(has(text, "explained: "), text);
  CHECK_MESSAGE(has(text, "stumbled"), text);
  REQUIRE(calls->size() == 5);
  CHECK(calls->back().starts_with("failed at "));
}

TEST_CASE("a section of a file is enabled if present, unless it is disabled") {
  const auto parts = with_pulse(std::make_shared<std::vector<std::string>>());
  CHECK(bound("pulse: {stride: 3}", parts).sections.at("pulse").find("stride")->scalar() == "3");
  CHECK(bound("pulse:", parts).sections.count("pulse") == 1);
  CHECK(bound("pulse: {enabled: true}", parts).sections.count("pulse") == 1);
  CHECK(bound("pulse: {enabled: false, stride: 3}", parts).sections.empty());
  CHECK(bound("seed: 3", parts).sections.empty());
  const auto node = resolved(bound("pulse: {}", parts), parts);
  REQUIRE(node.find("pulse") != nullptr);
  CHECK(node.find("pulse")->find("stride")->scalar() == "10");
  CHECK(resolved(bound("pulse: {enabled: false}", parts), parts).find("pulse") == nullptr);
  CHECK(resolved(bind_config(node, parts), parts) == node);
}

TEST_CASE("errors in a section are found with all others, in a file and in code") {
  const auto parts = with_pulse(std::make_shared<std::vector<std::string>>());
  auto text = refused("pulse: {strde: 3}\nseed: -1", parts);
  CHECK_MESSAGE(has(text, "2 errors"), text);
  CHECK_MESSAGE(has(text, "a.yaml:1:9: pulse.strde: no such key; did you mean 'stride'?"), text);
  text = refused("pulse: {stride: 0}", parts);
  CHECK_MESSAGE(has(text, "pulse.stride: '0' is out of range"), text);
  text = refused("pulse: {stride: 13}", parts);
  CHECK_MESSAGE(has(text, "pulse.stride: 13 brings bad luck"), text);
  text = refused("pulse: {enabled: maybe}", parts);
  CHECK_MESSAGE(has(text, "pulse.enabled: 'maybe' is not true or false"), text);
  text = refused("puls: {stride: 3}", parts);
  CHECK_MESSAGE(has(text, "did you mean 'pulse'?"), text);
  auto config = short_run();
  config.sections["pulse"] = {{"stride", 0}};
  CHECK(has(error_of([&] { Trainer(config, parts); }).what(), "pulse.stride: '0' is out of range"));
  config.sections = {{"plse", ConfigNode::map()}};
  CHECK(has(error_of([&] { Trainer(config, parts); }).what(), "no observer has the section 'plse'"));
  CHECK(full_key("stride", parts) == "pulse.stride");
}

TEST_CASE("a program without the tools says which library has their section, unless it is switched off") {
  const auto parts = builtin_parts();
  const auto text = refused("dump: {level: op}", parts);
  CHECK_MESSAGE(has(text, "a.yaml:1:1: dump: this program has no section 'dump'"), text);
  CHECK_MESSAGE(has(text, "npu_train::tools"), text);
  CHECK(bound("dump: {enabled: false, level: op, of_an_older_version: 3}", parts).sections.empty());
  auto config = short_run();
  config.sections["dump"] = {{"level", "op"}};
  CHECK(has(error_of([&] { Trainer{config}; }).what(), "npu_train::tools"));
}
