#include "npu_train/tools/checklist/checklist.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/operator_support.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/analyze/analyze_run.hpp"
#include "npu_train/tools/analyze/profiler.hpp"
#include "npu_train/tools/bench/baseline.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/doctor/environment_lint.hpp"
#include "npu_train/tools/probe/hello.hpp"
#include "npu_train/tools/probe/process_facts.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/tools/runs/verify_resume.hpp"
#include "npu_train/tools/scan/source_scan.hpp"
#include "npu_train/tools/validate/precision_validator.hpp"
#include "npu_train/tools/validate/verify_determinism.hpp"
#include "npu_train/train/loop.hpp"
#include "tools/checklist/device_run.hpp"

namespace npu_train {
namespace {

constexpr double kMostDataWait = 0.1;  // share of the time that steps wait for data

/// The result of a check.
struct Found {
  bool done = false;
  std::string evidence, next{};
  ItemState otherwise = ItemState::NotDone;  ///< the item's state if `done` is false
};

/// Returns the missing software, "driver and CANN" for an NPU or "driver" for a GPU; "" if the device needs none or the doctor found it.
std::string missing_software(const DoctorReport& report, const std::string& kind) {
  const auto found = [&](const char* area, const char* name) {
    return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) {
      return f.area == area && (*name == '\0' || f.name == name) && f.verdict != Verdict::NotHere && f.verdict != Verdict::Fail;
    });
  };
  if (kind == "cuda") return found("cuda", "") ? "" : "driver";
  if (kind != "npu" && kind != "sim_npu") return "";
  const bool driver = found("ascend", "driver"), cann = found("ascend", "CANN");
  return driver && cann ? "" : driver ? "CANN" : cann ? "driver" : "driver and CANN";
}

/// Returns the findings on timing and cuDNN: code that still measures or tunes on a GPU.
std::vector<std::string> timing_and_cudnn(const SourceScan& scan) {
  std::vector<std::string> out;
  for (const auto& f : scan.findings)
    for (const char* word : {"cudnn", "cuda.Event", "cuda.synchronize", "cudaEvent", "cudaDeviceSynchronize"})
      if (f.text.find(word) != std::string::npos) {
        out.push_back(f.file + ":" + std::to_string(f.line) + " " + f.text);
        break;
      }
  return out;
}

/// Collects the items of one list.
class Checks {
 public:
  Checks(const RunConfig& config, const ChecklistOptions& options, const Parts& parts)
      : given_(config), config_(detail::without_side_effects(config)), options_(options), parts_(parts), proof_parts_(parts) {
    try {
      parts.datasets.make(config.data, "data", parts.transforms);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Data) {  // other errors are reported by the items
        proof_parts_ = detail::shapes_only(parts, config);
        on_random_ = "; on random images, since the data are not available";
      }
    }
    out_.device = options.device;
    if (!options.reference.empty()) reference_ = read_baseline(options.reference);
    if (!options.baseline.empty()) baseline_ = read_baseline(options.baseline);
  }

  Checklist run() {
    environment();
    code();
    precision();
    performance();
    delivery();
    return std::move(out_);
  }

 private:
  void check_item(const char* stage, const char* item, const std::function<Found()>& look) {
    Found found;
    try {
      found = translated(item, look);
    } catch (const detail::TooFewSteps& e) {
      const auto fewer = options_.steps * e.taken / e.needed;
      found = {
          false,
          str_cat("not judged, since the run ends after ", e.taken, e.taken == 1 ? " step, but " : " steps, but ", e.needed, " are needed"),
          (fewer > 0 ? str_cat("use --steps ", fewer, ", or ") : std::string("use ")) + "a longer run", ItemState::NotChecked};
    } catch (const Error& e) {
      found = {false, e.what(), "fix the reported problem"};
    }
    out_.items.push_back({stage, item, found.done ? ItemState::Done : found.otherwise, found.evidence, found.done ? "" : found.next});
  }
  void not_checked(const char* stage, const char* item, const std::string& next) {
    out_.items.push_back({stage, item, ItemState::NotChecked, "", next});
  }
  void by_hand(const char* stage, const char* item, const std::string& next) {
    out_.items.push_back({stage, item, ItemState::ByHand, "", next});
  }

  /// Adds an item that compares two recorded trainings.
  void check_baselines(const char* stage, const char* item, const std::function<Found(const BaselineComparison&)>& look) {
    if (!reference_ || !baseline_)
      return not_checked(stage, item, "record npu_tool baseline on both devices, and pass the files with --reference and --baseline");
    check_item(stage, item, [&] { return look(compare_baselines(*baseline_, *reference_)); });
  }

  void environment();
  void code();
  void precision();
  void performance();
  void delivery();
  Found times_and_cudnn();
  Found edge_cases();
  Found batch_of_the_reference();
  Found several_devices() const;
  Found way_back() const;

  // Results that several items share. The first item that needs a result computes it; if this fails, the next item tries again.
  const SourceScan& scan() {
    if (!scan_) scan_ = scan_source(options_.source);
    return *scan_;
  }
  const detail::DeviceRun& short_run() {
    if (!run_) run_ = detail::run_on_device(there(), parts_, 2 * options_.steps + 1);
    return *run_;
  }
  const ValidationReport& validation() {
    if (validation_) return *validation_;
    auto reference = config_;
    reference.device = "cpu";
    const PrecisionValidator validator({.samples = 20, .train_steps = options_.steps});
    validation_ = validator.validate(there(), reference, proof_parts_);
    return *validation_;
  }
  bool is_cpu() const { return Device::parse(options_.device).is_cpu(); }
  RunConfig there() const {
    auto config = config_;
    config.device = options_.device;
    return config;
  }

  RunConfig given_, config_;  // config_: writes no files
  const ChecklistOptions& options_;
  const Parts& parts_;
  Parts proof_parts_;      // for checks of the engine that work with any data
  std::string on_random_;  // remark if other data than the configuration's are used
  std::optional<Baseline> reference_, baseline_;
  std::optional<SourceScan> scan_;
  std::optional<detail::DeviceRun> run_;
  std::optional<ValidationReport> validation_;
  Checklist out_;
};

void Checks::environment() {
  constexpr const char* stage = "environment";
  check_item(stage, "the machine is set up", [&] {
    const auto report = check_machine(HostView::live(), this_process(), {.write_bytes = 0});
    const auto kind = Device::parse(options_.device).kind;
    if (const auto missing = missing_software(report, kind); !missing.empty())
      return Found{false, "no " + missing + " found on this machine",
                   "run this on the machine with the device; npu_tool doctor --setup prints the steps",
                   kind == "sim_npu" ? ItemState::NotChecked : ItemState::NotDone};
    return Found{report.worst() != Verdict::Fail, report.summary(), "npu_tool doctor reports each failed check and its fix"};
  });
  check_item(stage, "the environment variables are right", [&] {
    std::vector<std::string> wrong, seen;
    for (const auto& f : lint_environment(HostView::live())) {
      seen.push_back(f.finding);
      if (f.verdict == Verdict::Warn || f.verdict == Verdict::Fail) wrong.push_back(f.name + ": " + f.finding);
    }
    return Found{wrong.empty(), join(wrong.empty() ? seen : wrong, "; "),
                 "npu_tool doctor --no-hello --write-env env.sh, then source env.sh"};
  });
  check_item(stage, "the device is available", [&] {
    const auto device = resolve_device(options_.device);
    return Found{true, device.str() + ", " + std::to_string(backend_of(device).count()) + " of this kind"};
  });
  check_item(stage, "the device computes the same as the CPU", [&] {
    const auto device = resolve_device(options_.device);
    const auto finding = judge_matmul(device, at::kFloat, hello_matmul(device, at::kFloat));
    return Found{finding.verdict == Verdict::Ok, finding.finding, finding.fix};
  });
}

void Checks::code() {
  constexpr const char* stage = "code";
  check_item(stage, "the chip has every operator", [&] {
    const auto analysis = analyze_run(config_, {.soc = options_.soc, .torch = options_.torch}, parts_);
    const auto verdict = analysis.verdict();
    return Found{verdict != "blocked",
                 verdict + " for " + analysis.options.soc + ", " + std::to_string(analysis.operators.size()) +
                     " kinds of operators, about " + short_number(analysis.hours(), 3) + " h of work",
                 "npu_tool analyze CONFIG lists the operators and their replacements"};
  });
  if (options_.source.empty())
    not_checked(stage, "the sources contain no CUDA-only code", "pass the project's folder with --source DIR to scan it");
  else
    check_item(stage, "the sources contain no CUDA-only code", [&] {
      return Found{scan().verdict == Feasibility::Ready, headline(scan()),
                   "npu_tool analyze --source " + options_.source + " --rewrite OUT"};
    });
  check_item(stage, "times are those of the device, and no setting of cuDNN is left", [&] { return times_and_cudnn(); });
  check_item(stage, "the model trains on the device", [&] {
    const auto report = try_run(config_, options_.device, {}, parts_);
    return Found{report.passed(), report.passed() ? "all trials passed" : report.failure + " at " + report.place, report.remedy};
  });
}

void Checks::precision() {
  constexpr const char* stage = "precision";
  check_item(stage, "a run repeats bit for bit", [&] {
    auto config = config_;
    config.device = "cpu";
    const auto report = verify_determinism(config, proof_parts_, {.steps = options_.steps});
    return Found{report.passed, report.str() + on_random_, "set deterministic: true, and run npu_tool verify-determinism"};
  });
  check_item(stage, "outputs, gradients and steps agree with the CPU", [&] {
    if (is_cpu()) return Found{true, "the device is the CPU itself"};
    const auto& report = validation();
    const auto* first = report.first_flagged();
    return Found{report.all_passed,
                 percentage(report.pass_rate) + " of " + std::to_string(report.samples) + " samples agree" +
                     (first != nullptr ? "; the first layer that differs is " + first->name : "") + on_random_,
                 "npu_tool validate CONFIG --device " + options_.device + ", then npu_tool compare with two dumps"};
  });
  check_item(stage, "edge cases agree with the CPU", [&] { return edge_cases(); });
  check_baselines(stage, "losses and accuracy follow the reference", [](const BaselineComparison& c) {
    return Found{c.accuracy_passed(), c.accuracy_sentence(),
                 c.advice.empty() ? "npu_tool compare reports the first step that differs and, with dumps, the first layer" : c.advice};
  });
}

Found Checks::times_and_cudnn() {
  const auto kind = Device::parse(options_.device).kind;
  for (const auto& [key, value] :
       {std::pair{"trainer.benchmark", config_.trainer.benchmark}, {"trainer.allow_tf32", config_.trainer.allow_tf32}})
    if (value == "true" && kind != "cuda") return {false, str_cat(key, "=true is a setting of GPUs"), str_cat("set ", key, " to auto")};
  if (options_.source.empty())
    return {false, "the configuration has none; the sources were not scanned", "pass the project's folder with --source DIR to scan it",
            ItemState::NotChecked};
  const auto left = timing_and_cudnn(scan());
  return {
      left.empty() || kind == "cuda",
      left.empty() ? "none in the configuration and the sources" : str_cat(left.size(), ", first ", left[0]),
      "npu_tool analyze --source " + options_.source + " --rewrite OUT; a time that is read without waiting for the device is too short"};
}

Found Checks::edge_cases() {
  if (is_cpu()) return {true, "the device is the CPU itself"};
  constexpr std::array kEdges{"batch of 1", "last partial batch", "zeros", "large values"};
  std::vector<std::string> seen, failed;
  for (const auto& row : validation().checks)
    if (std::find(kEdges.begin(), kEdges.end(), row.name) != kEdges.end()) (row.passed ? seen : failed).push_back(row.name);
  return {failed.empty() && !seen.empty(), failed.empty() ? join(seen) + on_random_ : "different: " + join(failed),
          "npu_tool validate CONFIG --device " + options_.device + " shows the differences"};
}

Found Checks::batch_of_the_reference() {
  const auto evidence =
      str_cat("an update has ", short_run().effective_batch(), " samples (data.batch_size ", short_run().batch,
              ", trainer.accumulate_grad_batches ", short_run().accumulate, "), and ", short_run().steps, " such steps fit in the memory");
  if (!reference_)
    return {false, evidence, "pass the baseline of the original device with --reference, to compare the samples of an update",
            ItemState::NotChecked};
  return {short_run().effective_batch() == reference_->effective_batch,
          str_cat(evidence, "; the reference has ", reference_->effective_batch),
          "a smaller data.batch_size with more trainer.accumulate_grad_batches keeps the samples of an update"};
}

Found Checks::several_devices() const {
  const auto device = resolve_device(options_.device);
  const auto count = backend_of(device).count();
  const auto commands = "npu_tool doctor --dist, then " + options_.train + " device=" + device.kind + " --nproc 2 dist.check_every=1";
  if (count == 1)
    return {false, "one device of this kind on this machine", "on a machine with several: " + commands, ItemState::NotChecked};
  check_collectives(count, device, config_.dist);
  return {false, str_cat(count, " devices of this kind"), "train on all of them: " + commands, ItemState::ByHand};
}

void Checks::performance() {
  constexpr const char* stage = "performance";
  check_item(stage, "data loading keeps up with the device", [&] {
    return Found{short_run().waited <= kMostDataWait,
                 percentage(short_run().waited) + " of the time of " + std::to_string(short_run().steps) +
                     " steps was spent waiting for data; allowed: at most 10 %",
                 "raise data.num_workers, or use cheaper transforms; trainer.profiler=simple shows all phases"};
  });
  check_item(stage, "batches are copied from page-locked memory", [&] {
    if (!short_run().can_pin) return Found{true, "the device needs no such copies"};
    return Found{short_run().pins, short_run().pins ? "the batches of the loader are pinned" : "the batches of the loader are not pinned",
                 "a loader of your own can pin its batches: LoaderOptions::finish with pin()"};
  });
  check_item(stage, "an update has the samples of the reference, and fits", [&] { return batch_of_the_reference(); });
  check_baselines(stage, "the speed is sufficient", [](const BaselineComparison& c) {
    if (!c.speed_judged())
      return Found{false, "not judged: " + c.speed_obstacle(), "record npu_tool baseline on the device itself, with more steps",
                   ItemState::NotChecked};
    return Found{c.speed_passed(), short_number(c.speed, 3) + " times the reference's",
                 "trainer.profiler=chrome shows where the time goes"};
  });
  check_item(stage, "several devices train together", [&] { return several_devices(); });
  const auto command =
      profiler_command({Device::parse(options_.device).kind, 0}, options_.train + " device=" + options_.device + " trainer.max_steps=20");
  by_hand(stage, "the device's own timeline shows no gaps",
          command.empty() ? "check it with the device's profiler" : "check it with the device's profiler: " + command);
}

Found Checks::way_back() const {
  if (is_cpu()) return {true, "the device is the CPU itself"};
  const auto found = detail::return_to_cpu(there(), proof_parts_, options_.steps);
  return {found.same_weights && found.finite,
          !found.same_weights ? "the weights on the CPU are not those of the checkpoint"
          : !found.finite     ? "the weights are not finite after further steps on the CPU"
                              : str_cat("a checkpoint after ", options_.steps, " steps in ", found.precision,
                                        " has the same weights on the CPU, and ", options_.steps, " more steps there are finite", on_random_),
          "train_app CONFIG device=cpu --resume PATH reports what cannot be loaded"};
}

void Checks::delivery() {
  constexpr const char* stage = "delivery";
  check_item(stage, "a run resumes bit for bit", [&] {
    auto config = config_;
    config.device = "cpu";
    const auto report = verify_resume(config, proof_parts_, {.steps = options_.steps});
    return Found{report.passed, report.str() + on_random_, "train_app CONFIG --verify-resume reports the part that differs"};
  });
  check_item(stage, "a checkpoint of the device continues on the CPU", [&] { return way_back(); });
  check_item(stage, "the run is monitored", [&] {
    const auto& files = given_.output;
    std::vector<std::string> loggers;
    for (const auto& part : files.logger) loggers.push_back(part.name);
    const bool writes = !files.dir.empty() && !loggers.empty();
    return Found{writes,
                 !writes ? str_cat("output.", files.dir.empty() ? "dir" : "logger", " is empty, so no metrics are written")
                         : str_cat("values go to ", join(loggers), " every ", given_.trainer.log_every_n_steps, " steps; ",
                                   given_.trainer.max_consecutive_skips, " overflows in a row, or a loss that is not finite, end the run"),
                 "set output.dir and output.logger; npu_tool report RUN shows a run while it trains, and npu_tool serve RUN its page"};
  });
  by_hand(stage, "a full training on the device reached the required accuracy", "train to the end; its baseline.json is the proof");
  by_hand(stage, "the weights were delivered, and loaded by the program that uses them",
          "npu_tool weights writes .safetensors, which every framework reads");
  by_hand(stage, "versions, configuration and known differences are documented",
          "config.yaml and environment.json of the run's folder contain the first two");
}

}  // namespace

Checklist migration_checklist(const RunConfig& config, const ChecklistOptions& options, const Parts& parts) {
  check(options.steps >= 1 && options.steps <= 1000, ErrorKind::Usage, "checklist", "steps is ", options.steps,
        "; it must be between 1 and 1000");
  AscendOperators(options.soc, options.torch);
  if (!options.source.empty())
    check(std::filesystem::is_directory(options.source), ErrorKind::Usage, "checklist", options.source, ": not a folder");
  Checks checks(config, options, parts);
  if (Device::parse(options.device).kind == "sim_npu") start_sim_npu(config.sim_npu);
  try {
    resolve_device(options.device);  // before the first backward pass of the process, at which autograd counts the devices
  } catch (const Error&) {           // a separate item reports it
  }
  return checks.run();
}

}  // namespace npu_train
