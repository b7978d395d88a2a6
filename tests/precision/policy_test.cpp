#include "testing.hpp"

#include "npu_train/device/backend.hpp"
#include "npu_train/precision/policy.hpp"
#include "precision/modes.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

PrecisionPolicy policy_of(const std::string& mode, const std::string& cpu = "native", GradScalerOptions scaler = {}) {
  PrecisionOptions options;
  options.mode = mode;
  options.cpu_low_precision = cpu;
  options.grad_scaler = std::move(scaler);
  options.fp32_ops = {"gelu"};
  options.fp32_modules = {"head"};
  return precision_policy(options, Device{});
}

std::string value_of(const PrecisionPolicy& p, const char* key) {
  const auto node = p.node();
  const auto* value = node.find(key);
  return value == nullptr ? "(missing)" : to_yaml_line(*value);
}

}  // namespace

TEST_CASE("the policy of each mode") {
  struct Row {
    const char *asked, *mode, *computes, *parameters, *detector;
  };
  for (const Row& row :
       {Row{"O0", "32-true", "fp32", "fp32", "none"}, Row{"bf16-mixed", "bf16-mixed", "bf16", "fp32", "none"},
        Row{"O1", "\"16-mixed\"", "fp16", "fp32", "finite check"}, Row{"bf16-true", "bf16-true", "bf16", "\"bf16, fp32 masters\"", "none"},
        Row{"O2", "\"16-true\"", "fp16", "\"fp16, fp32 masters\"", "finite check"},
        Row{"O3", "O3", "fp16", "\"fp16, no masters\"", "finite check"}}) {
    CAPTURE(std::string(row.asked));
    const auto p = policy_of(row.asked);
    const auto unquoted = [](std::string s) {
      std::erase(s, '"');
      return s;
    };
    CHECK(unquoted(value_of(p, "mode")) == unquoted(row.mode));
    CHECK(value_of(p, "computes") == row.computes);
    CHECK(unquoted(value_of(p, "parameters")) == unquoted(row.parameters));
    CHECK(value_of(p, "overflow_detector") == row.detector);
    CHECK(value_of(p, "device") == "cpu");
    CHECK((value_of(p, "loss_scale") == "none") == (std::string(row.detector) == "none"));
    const bool low = std::string(row.computes) != "fp32";
    CHECK(value_of(p, "fp32_ops") == (low ? "[gelu]" : "[]"));
    CHECK(value_of(p, "fp32_modules") == (low ? "[head]" : "[]"));
    CHECK(make_precision({.mode = row.asked}, Device{})->name() == p.mode);  // both follow the same decision
  }
}

TEST_CASE("auto: bf16-mixed where there are units for it, fp16 on other accelerators, fp32 on other CPUs") {
  using npu_train::detail::auto_mode;
  const Device cpu{}, cuda{"cuda", 0};
  CHECK(auto_mode(cpu, {.native_bf16 = true}) == "bf16-mixed");
  CHECK(auto_mode(cpu, {.native_fp16 = true}) == "32-true");
  CHECK(auto_mode(cuda, {.native_bf16 = true, .native_fp16 = true}) == "bf16-mixed");
  CHECK(auto_mode(cuda, {.native_fp16 = true}) == "16-mixed");
  CHECK(make_precision({.mode = "auto"}, cpu)->name() == auto_mode(cpu, backend_of(cpu).capabilities(cpu)));
}

TEST_CASE("native, emulated, and native although that is slow") {
  CHECK(has(value_of(policy_of("bf16-mixed", "emulated"), "kernels"), "emulated"));
  const bool units = backend_of({}).capabilities({}).native_bf16;
  CHECK(has(value_of(policy_of("bf16-mixed"), "kernels"), units ? "native" : "slow on this device"));
  CHECK(value_of(policy_of("32-true"), "kernels") == "(missing)");
}

TEST_CASE("the loss scale with all its numbers") {
  const auto line = value_of(policy_of("16-mixed", "native", {.init_scale = 128, .hysteresis = 2}), "loss_scale");
  for (const char* part : {"init_scale: 128", "growth_factor: 2", "backoff_factor: 0.5", "growth_interval: 2000", "hysteresis: 2",
                           "min_scale: 1", "max_scale: 16777216"})
    CHECK(has(line, part));
  CHECK(value_of(policy_of("16-mixed", "native", {.init_scale = 64, .dynamic = false}), "loss_scale") ==
        "{init_scale: 64, dynamic: false}");
  CHECK(value_of(policy_of("16-mixed", "native", {.enabled = "false"}), "loss_scale") == "none");
  CHECK(value_of(policy_of("16-mixed", "native", {.enabled = "false"}), "overflow_detector") == "none");
}

TEST_CASE("layers are a map by name, as YAML and as JSON") {
  auto p = policy_of("bf16-mixed");
  CHECK(value_of(p, "layers") == "(missing)");
  p.layers = {{.name = "layer1.0.bn1", .op = "batch_norm", .computes = "bf16", .parameters = "fp32"},
              {.name = "", .op = "add", .computes = "fp32", .parameters = "fp32"}};
  p.fp32_ops_not_met = {"gelu"};
  CHECK(has(to_yaml(p.node()), "layer1.0.bn1: {op: batch_norm, computes: bf16, parameters: fp32}"));
  CHECK(has(to_yaml(p.node()), "(the model itself)"));
  CHECK(has(to_json(p.node()), "\"fp32_ops_not_met\":"));
  CHECK((parse_yaml(to_yaml(p.node()), "test") == p.node()));
}

TEST_CASE("errors are those of make_precision") {
  CHECK(has(error_of([] { policy_of("bf16-mixd"); }).what(), "did you mean bf16-mixed?"));
  CHECK(error_of([] { policy_of("bf16-mixed", "native", {.enabled = "true"}); }).kind() == ErrorKind::Usage);
  PrecisionOptions both;
  both.fp32_modules = both.low_precision_modules = {"head"};
  CHECK(has(error_of([&] { precision_policy(both, Device{}); }).what(), "'head'"));
}
