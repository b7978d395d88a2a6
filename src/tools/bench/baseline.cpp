#include "npu_train/tools/bench/baseline.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/engine/environment.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

constexpr const char* kBaselineFormat = "npu_train baseline 1";
constexpr int64_t kLeastWarmup = 2;

// Returns the kind of memory that a device's peak describes.
const char* kind_of_memory(const std::string& device) { return device.starts_with("cpu") ? "process" : "tensors"; }

// Checks the configured length of the run.
void check_long_enough(const RunConfig& config) {
  check(!config.trainer.fast_dev_run, ErrorKind::Usage, "baseline",
        "trainer.fast_dev_run runs only one step, but the first two are warm-up; hint: trainer.fast_dev_run=false, and for a short run "
        "trainer.max_steps=30");
  check(config.trainer.max_steps < 0 || config.trainer.max_steps > kLeastWarmup, ErrorKind::Usage, "baseline", "trainer.max_steps is ",
        config.trainer.max_steps, ", but the first two steps are warm-up; hint: set trainer.max_steps=30, or omit it");
}

struct StepRecorder final : Callback {
  Baseline& baseline;
  std::vector<double> seconds;
  explicit StepRecorder(Baseline& b) : baseline(b) {}
  void on_step_end(TrainLoop& /*loop*/, const StepReport& report) override {
    seconds.push_back(report.seconds);
    if (!report.taken) return;
    baseline.steps.push_back(report.global_step);
    baseline.losses.push_back(scalar_or(report.metrics, "loss", std::nan("")));
    baseline.lrs.push_back(report.lr);
  }
};

std::vector<double> numbers_in(const Json& json, const char* key, const std::string& where) {
  std::vector<double> out;
  for (const auto& item : json.at(key, where).items(where + ": " + key)) out.push_back(item.number(where + ": " + key));
  return out;
}

}  // namespace

Baseline record_baseline(const RunConfig& config, const Parts& parts, const Baseline* reference) {
  Baseline out;
  check_long_enough(config);
  Trainer trainer(config, parts);
  const auto recorder = std::make_shared<StepRecorder>(out);
  trainer.add_callback(recorder);
  trainer.setup();
  const auto& run = trainer.loop().parts();
  const auto& backend = backend_of(run.device);
  out.model = run.model_name;
  out.parameters = run.optimizer->parameters().numel();
  out.effective_batch = run.train_loader->options().batch_size * config.trainer.accumulate_grad_batches * run.strategy->ranks().size();
  if (reference != nullptr) check_same_training(out, *reference);
  backend.reset_peak(run.device);
  const auto result = trainer.fit();
  const auto n = recorder->seconds.size();
  const auto warmup = std::clamp<size_t>(n / 10, kLeastWarmup, 20);
  check(n > warmup, ErrorKind::Usage, "baseline", "the run ended after ", n, " steps, but the first ", warmup,
        " are warm-up; hint: increase trainer.max_epochs or trainer.max_steps");
  out.step_seconds.seconds.assign(recorder->seconds.begin() + static_cast<std::ptrdiff_t>(warmup), recorder->seconds.end());
  out.data = config.data.name;
  out.device = run.device.str();
  out.precision = run.precision->name();
  out.val = result.final_val;
  out.peak_memory = backend.memory(run.device).peak;
  out.peak_memory_of = kind_of_memory(out.device);
  out.config = run.config;
  out.environment = environment();
  out.run_dir = result.run_dir;
  return out;
}

Json to_json(const Baseline& b) {
  auto val = Json::object(), facts = Json::object();
  for (const auto& [name, value] : b.val) val.set(name, value);
  for (const auto& [name, value] : b.environment) facts.set(name, value);
  return Json::object({{"format", kBaselineFormat},
                       {"model", b.model},
                       {"data", b.data},
                       {"device", b.device},
                       {"precision", b.precision},
                       {"parameters", b.parameters},
                       {"effective_batch", b.effective_batch},
                       {"samples_per_s", b.samples_per_second()},
                       {"step_ms_median", 1e3 * b.step_seconds.median()},
                       {"peak_memory_bytes", b.peak_memory},
                       {"peak_memory_of", b.peak_memory_of},
                       {"val", std::move(val)},
                       {"step", detail::json_list(b.steps)},
                       {"loss", detail::json_list(b.losses)},
                       {"lr", detail::json_list(b.lrs)},
                       {"step_seconds", detail::json_list(b.step_seconds.seconds)},
                       {"environment", std::move(facts)},
                       {"config", to_yaml(b.config)}});
}

Baseline read_baseline(const std::filesystem::path& path) {
  const auto json = load_json(path);
  const auto where = path.string();
  const auto* format = json.find("format");
  check(format != nullptr && format->is_text() && format->text(where) == kBaselineFormat, ErrorKind::Data, "baseline", where,
        ": not a baseline file; hint: npu_tool baseline CONFIG --out FILE writes one");
  const auto text = [&](const char* key) { return json.at(key, where).text(where + ": " + key); };
  Baseline out{.model = text("model"), .data = text("data"), .device = text("device"), .precision = text("precision")};
  out.parameters = json.at("parameters", where).integer(where + ": parameters");
  out.effective_batch = json.at("effective_batch", where).integer(where + ": effective_batch");
  out.peak_memory = json.at("peak_memory_bytes", where).integer(where + ": peak_memory_bytes");
  out.peak_memory_of = json.find("peak_memory_of") != nullptr ? text("peak_memory_of") : kind_of_memory(out.device);
  for (const auto& item : json.at("step", where).items(where + ": step")) out.steps.push_back(item.integer(where + ": step"));
  out.losses = numbers_in(json, "loss", where);
  out.lrs = numbers_in(json, "lr", where);
  out.step_seconds.seconds = numbers_in(json, "step_seconds", where);
  check(out.losses.size() == out.steps.size() && out.lrs.size() == out.steps.size() && !out.steps.empty() && out.step_seconds.size() > 0,
        ErrorKind::Data, "baseline", where, ": ", out.steps.size(), " steps, ", out.losses.size(), " losses, ", out.lrs.size(),
        " learning rates, ", out.step_seconds.size(),
        " times; each step must have one loss and one rate, and there must be at least one step");
  check(std::all_of(out.step_seconds.seconds.begin(), out.step_seconds.seconds.end(), [](double s) { return std::isfinite(s) && s > 0; }) &&
            out.effective_batch > 0,
        ErrorKind::Data, "baseline", where, ": the step times and the batch must be positive numbers");
  check(std::is_sorted(out.steps.begin(), out.steps.end()), ErrorKind::Data, "baseline", where, ": steps must be in ascending order");
  for (const auto& [name, value] : json.at("val", where).members(where + ": val"))
    out.val.emplace_back(name, value.number(where + ": val"));
  for (const auto& [name, value] : json.at("environment", where).members(where + ": environment"))
    out.environment[name] = value.text(where + ": environment");
  out.config = parse_yaml(text("config"), where + ": config");
  return out;
}

Report report_of(const Baseline& b) {
  std::string out = b.model + " on " + b.device + " in " + b.precision + ": " + std::to_string(b.losses.size()) + " steps of " +
                    std::to_string(b.effective_batch) + ", loss " + short_number(b.losses.front()) + " to " + short_number(b.losses.back());
  for (const auto& [name, value] : b.val) out += ", val/" + name + " " + short_number(value);
  out += "; " + short_number(b.samples_per_second()) + " samples/s, " + short_number(1e3 * b.step_seconds.median()) + " ms per step";
  if (b.peak_memory >= 0) out += ", peak memory of the " + b.peak_memory_of + " " + human_bytes(static_cast<double>(b.peak_memory));
  Report report("Baseline of " + b.model, to_json(b));
  report.say(out);
  return report;
}

}  // namespace npu_train
