// Every optimizer and the newer schedules, made by name with keys of a configuration, compared with torch.optim, timm and transformers.
// scripts/pytorch_reference.py has written the results of those libraries, computed in double precision.
#include "testing.hpp"

#include "helpers.hpp"
#include "npu_train/optim/schedule.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

nlohmann::json reference() {
  std::ifstream in(std::string(NPU_TRAIN_SOURCE_DIR) + "/tests/fixtures/optimizers_reference.json");
  REQUIRE(in.good());
  return nlohmann::json::parse(in);
}

std::unique_ptr<Optimizer> optimizer_of(const nlohmann::json& c, const ParameterSet& set) {
  OptimizerRegistry registry("optimizer");
  add_builtin_optimizers(registry);
  return registry.make({.name = c["name"], .options = parse_yaml(c["options"].dump(), "case"), .mark = {}}, "optimizer", set);
}

ParameterSet start_of(const nlohmann::json& data, at::ScalarType type) {
  ParameterSet set;
  for (const auto& [name, shape] : data["shapes"].items())
    set.add({.name = name, .value = tensor_of(data["start"][name], shape, type).set_requires_grad(true)});
  return set;
}

void set_gradients(const nlohmann::json& data, size_t t, const ParameterSet& set) {
  for (const auto& p : set) p.value.mutable_grad() = tensor_of(data["gradients"][t][p.name], data["shapes"][p.name], p.value.scalar_type());
}

// Returns the largest distance over the steps for which the case has values.
double distance(const nlohmann::json& data, const nlohmann::json& c, at::ScalarType type) {
  const auto set = start_of(data, type);
  const auto optimizer = optimizer_of(c, set);
  const double lr = optimizer->lr();
  const auto kept = data["kept"].get<std::vector<size_t>>();
  double worst = 0;
  for (size_t t = 0, k = 0; t < data["gradients"].size(); ++t) {
    set_gradients(data, t, set);
    optimizer->set_lr(lr * (1 - 0.01 * static_cast<double>(t)));
    optimizer->step(t % 2 == 0 ? StepDecision() : found(0));  // both ways to say that a step is taken
    if (t + 1 != kept[k]) continue;
    for (const auto& p : set)
      worst = std::max(worst, largest_difference(p.value, flat(tensor_of(c["values"][k][p.name], data["shapes"][p.name], at::kDouble))));
    ++k;
  }
  return worst;
}

std::unique_ptr<LrSchedule> schedule_of(const std::string& name, const nlohmann::json& options, double lr) {
  ScheduleRegistry registry("learning-rate schedule");
  add_builtin_schedules(registry);
  return registry.make({.name = name, .options = parse_yaml(options.dump(), "case"), .mark = {}}, "lr_scheduler", {-1, -1, lr});
}

}  // namespace

TEST_CASE("each optimizer against torch.optim or timm, 50 steps of a falling rate") {
  const auto data = reference();
  std::set<std::string> names;
  for (const auto& c : data["optimizers"]) {
    CAPTURE(c["name"].get<std::string>());
    CAPTURE(c["options"].dump());
    names.insert(c["name"]);
    REQUIRE(c["values"].size() == data["kept"].size());
    CHECK(distance(data, c, at::kDouble) < 1e-7);  // numbers such as the count of steps are fp32
    CHECK(distance(data, c, at::kFloat) < 2e-5);
  }
  names.insert("lamb");  // torch and timm use other formulas
  const auto& all = optimizer_names();
  CHECK(names == std::set<std::string>(all.begin(), all.end()));
}

TEST_CASE("fp16 and bf16 parameters: each step is that of fp32, rounded once, and so is the state") {
  const auto data = reference();
  for (const auto& c : data["optimizers"])
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      CAPTURE(c["name"].get<std::string>());
      CAPTURE(c["options"].dump());
      if (c["name"] == "sgd" && c["options"].value("dampening", 0.0) == 0) continue;  // its momentum has the dtype of the parameter
      if (c["name"] == "adam" || c["name"] == "adamw") continue;                      // their kernels fuse multiplications: adam_cases.hpp
      const auto low = start_of(data, type), wide = start_of(data, at::kFloat);
      const auto of_low = optimizer_of(c, low), of_wide = optimizer_of(c, wide);
      for (size_t t = 0; t < 20; ++t) {
        const c10::NoGradGuard no_grad;
        set_gradients(data, t, low);
        for (size_t i = 0; i < low.size(); ++i) {
          wide[i].value.copy_(low[i].value);
          wide[i].value.mutable_grad() = low[i].value.grad().to(at::kFloat);
        }
        of_low->step();
        of_wide->step();
        for (size_t i = 0; i < low.size(); ++i) CHECK(at::equal(low[i].value, wide[i].value.to(type)));
      }
      for (const auto& [key, tensor] : of_wide->state().tensors) CHECK_MESSAGE(at::equal(of_low->state().tensors.at(key), tensor), key);
    }
}

TEST_CASE("schedules against torch, timm and transformers, at every step") {
  const auto data = reference();
  for (const auto& c : data["schedules"]) {
    CAPTURE(c["name"].get<std::string>());
    CAPTURE(c["options"].dump());
    const auto schedule = schedule_of(c["name"], c["options"], 1);
    REQUIRE(c["factors"].size() == 60);
    for (size_t t = 0; t < 60; ++t) {
      CAPTURE(t);
      CHECK(std::abs(schedule->factor(static_cast<double>(t)) - c["factors"][t].get<double>()) < 1e-9);
    }
  }
  CHECK(data["schedules"].size() == 10);
}

TEST_CASE("plateau against ReduceLROnPlateau, also when it is continued from its state") {
  const auto data = reference();
  for (const auto& c : data["plateaus"]) {
    CAPTURE(c["options"].dump());
    const auto schedule = schedule_of("plateau", c["options"], 0.1);
    REQUIRE(schedule->plateau() != nullptr);
    const bool larger = schedule->plateau()->mode == "max";
    auto rule = std::make_unique<Plateau>(*schedule->plateau(), larger);
    double least = 1;
    for (size_t t = 0; t < c["metrics"].size(); ++t) {
      CAPTURE(t);
      auto next = std::make_unique<Plateau>(*schedule->plateau(), larger);
      next->load_state(rule->state());
      rule = std::move(next);
      rule->note(c["metrics"][t], 0.1);
      CHECK(0.1 * rule->factor() == doctest::Approx(c["lr"][t].get<double>()).epsilon(1e-9));
      least = std::min(least, rule->factor());
    }
    CHECK(least < 1);  // the rate has fallen
  }
  CHECK(data["plateaus"].size() == 5);
}

TEST_CASE("plateau takes NaN for no improvement") {
  PlateauOptions options;
  options.patience = 1;
  Plateau rule(options, /*larger_is_better=*/false);
  for (const double value : {std::nan(""), std::nan("")}) rule.note(value, 1);
  CHECK(rule.factor() == doctest::Approx(0.1));
  rule.note(2, 1);
  rule.note(std::nan(""), 1);
  CHECK(rule.factor() == doctest::Approx(0.1));
  rule.note(std::nan(""), 1);
  CHECK(rule.factor() == doctest::Approx(0.01));
}
