#include "npu_train/tools/checklist/checklist.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/operator_support.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/analyze/analyze_run.hpp"
#include "npu_train/tools/analyze/profiler.hpp"
#include "npu_train/tools/bench/baseline.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/probe/hello.hpp"
#include "npu_train/tools/probe/process_facts.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/tools/runs/verify_resume.hpp"
#include "npu_train/tools/scan/scan_report.hpp"
#include "npu_train/tools/validate/precision_validator.hpp"
#include "npu_train/tools/validate/verify_determinism.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

constexpr double kMostDataWait = 0.1;  // share of the time

/// The result of a check.
struct Found {
  bool done = false;
  std::string evidence, next{};
  bool not_checked = false;  ///< it cannot be checked on this machine or with these options
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

/// Collects the items of one list.
class Checks {
 public:
  Checks(const RunConfig& config, const ChecklistOptions& options, const Parts& parts)
      : config_(detail::without_side_effects(config)), options_(options), parts_(parts), proof_parts_(parts) {
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
          (fewer > 0 ? str_cat("use --steps ", fewer, ", or ") : std::string("use ")) + "a longer run", true};
    } catch (const Error& e) {
      found = {false, e.what(), "fix the reported problem"};
    }
    const auto state = found.done ? ItemState::Done : found.not_checked ? ItemState::NotChecked : ItemState::NotDone;
    out_.items.push_back({stage, item, state, found.evidence, found.done ? "" : found.next});
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
  Found data_keeps_up() const;
  RunConfig there() const {
    auto config = config_;
    config.device = options_.device;
    return config;
  }

  RunConfig config_;
  const ChecklistOptions& options_;
  const Parts& parts_;
  Parts proof_parts_;      // for checks of the engine that work with any data
  std::string on_random_;  // remark if other data than the configuration's are used
  std::optional<Baseline> reference_, baseline_;
  Checklist out_;
};

void Checks::environment() {
  constexpr const char* stage = "environment";
  check_item(stage, "the machine is set up", [&] {
    const auto report = check_machine(HostView::live(), this_process(), {.write_bytes = 0});
    const auto kind = Device::parse(options_.device).kind;
    if (const auto missing = missing_software(report, kind); !missing.empty())
      return Found{false, "no " + missing + " found on this machine",
                   "run this on the machine with the device; npu_tool doctor shows further checks", kind == "sim_npu"};
    return Found{report.worst() != Verdict::Fail, report.summary(), "npu_tool doctor reports each failed check and its fix"};
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
      const auto scan = scan_source(options_.source);
      return Found{scan.verdict == Feasibility::Ready, headline(scan), "npu_tool analyze --source " + options_.source + " --rewrite OUT"};
    });
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
    if (Device::parse(options_.device).is_cpu()) return Found{true, "the device is the CPU itself"};
    auto reference = config_;
    reference.device = "cpu";
    const PrecisionValidator validator({.samples = 20, .train_steps = options_.steps});
    const auto report = validator.validate(there(), reference, proof_parts_);
    const auto* first = report.first_flagged();
    return Found{report.all_passed,
                 short_number(100 * report.pass_rate, 3) + " % of " + std::to_string(report.samples) + " samples agree" +
                     (first != nullptr ? "; the first layer that differs is " + first->name : "") + on_random_,
                 "npu_tool validate CONFIG --device " + options_.device + ", then npu_tool compare with two dumps"};
  });
  check_baselines(stage, "losses and accuracy follow the reference", [](const BaselineComparison& c) {
    return Found{c.accuracy_passed(), c.accuracy_sentence(),
                 c.advice.empty() ? "npu_tool compare reports the first step that differs and, with dumps, the first layer" : c.advice};
  });
}

Found Checks::data_keeps_up() const {
  Trainer trainer(there(), parts_);
  trainer.loop().set_max_steps(2 * options_.steps + 1);
  Profiler profiler(trainer.loop().parts().device, {});
  trainer.add_observer(&profiler);
  trainer.fit();
  const auto profile = profiler.profile();
  double waited = 0;
  for (const auto& p : profile.phases)
    if (p.phase == Phase::DataWait) waited = p.seconds / profile.seconds;
  return {waited <= kMostDataWait,
          short_number(100 * waited, 3) + " % of the time of " + std::to_string(profile.windows) +
              " steps was spent waiting for data; allowed: at most 10 %",
          "raise data.num_workers, or use cheaper transforms; trainer.profiler=simple shows all phases"};
}

void Checks::performance() {
  constexpr const char* stage = "performance";
  check_item(stage, "data loading keeps up with the device", [&] { return data_keeps_up(); });
  check_baselines(stage, "the speed is sufficient", [](const BaselineComparison& c) {
    if (!c.speed_judged())
      return Found{false, "not judged: " + c.speed_obstacle(), "record npu_tool baseline on the device itself, with more steps", true};
    return Found{c.speed_passed(), short_number(c.speed, 3) + " times the reference's",
                 "trainer.profiler=chrome shows where the time goes"};
  });
  const auto command =
      profiler_command({Device::parse(options_.device).kind, 0}, options_.train + " device=" + options_.device + " trainer.max_steps=20");
  by_hand(stage, "the device's own timeline shows no gaps",
          command.empty() ? "check it with the device's profiler" : "check it with the device's profiler: " + command);
}

void Checks::delivery() {
  constexpr const char* stage = "delivery";
  check_item(stage, "a run resumes bit for bit", [&] {
    auto config = config_;
    config.device = "cpu";
    const auto report = verify_resume(config, proof_parts_, {.steps = options_.steps});
    return Found{report.passed, report.str() + on_random_, "train_app CONFIG --verify-resume reports the part that differs"};
  });
  by_hand(stage, "a full training on the device reached the required accuracy", "train to the end; its baseline.json is the proof");
  by_hand(stage, "the weights were delivered, and loaded by the program that uses them",
          "npu_tool weights writes .safetensors, which every framework reads");
  by_hand(stage, "versions, configuration and known differences are documented",
          "config.yaml and environment.json of the run's folder contain the first two");
}

}  // namespace

const char* item_state_name(ItemState state) {
  switch (state) {
    case ItemState::Done:
      return "done";
    case ItemState::NotDone:
      return "not done";
    case ItemState::NotChecked:
      return "not checked";
    case ItemState::ByHand:
      break;
  }
  return "by hand";
}

size_t Checklist::count(ItemState state) const {
  return static_cast<size_t>(std::count_if(items.begin(), items.end(), [&](const ChecklistItem& i) { return i.state == state; }));
}

std::string Checklist::summary() const {
  return std::to_string(count(ItemState::Done)) + " of " + std::to_string(items.size()) + " done, " +
         std::to_string(count(ItemState::NotDone)) + " not done, " + std::to_string(count(ItemState::NotChecked)) + " not checked, " +
         std::to_string(count(ItemState::ByHand)) + " by hand";
}

Checklist migration_checklist(const RunConfig& config, const ChecklistOptions& options, const Parts& parts) {
  check(options.steps >= 1 && options.steps <= 1000, ErrorKind::Usage, "checklist", "steps is ", options.steps,
        "; it must be between 1 and 1000");
  AscendOperators(options.soc, options.torch);
  if (!options.source.empty())
    check(std::filesystem::is_directory(options.source), ErrorKind::Usage, "checklist", options.source, ": not a folder");
  Checks checks(config, options, parts);
  if (Device::parse(options.device).kind == "sim_npu") start_sim_npu(config.sim_npu);
  try {
    resolve_device(options.device);  // autograd counts devices at the first backward pass of a process
  } catch (const Error&) {           // a separate item reports it
  }
  return checks.run();
}

Report report_of(const Checklist& checklist) {
  const auto done = checklist.count(ItemState::Done), failed = checklist.count(ItemState::NotDone), all = checklist.items.size();
  const auto summary = checklist.summary();
  Report out("Migration to " + checklist.device, Json::object({{"device", checklist.device}, {"summary", summary}}));
  out.verdict("migration to " + checklist.device + ": " + summary, Tone::Plain, ReportIn::Text);
  out.verdict(done == all  ? "The migration is complete: all " + std::to_string(all) + " items are done"
              : failed > 0 ? "The migration is not complete: " + summary
                           : "No check failed, but the migration is not complete: " + summary,
              done == all  ? Tone::Good
              : failed > 0 ? Tone::Bad
                           : Tone::Warn,
              ReportIn::Page);
  ReportTable items{.layout = ReportTable::Layout::GroupedList};
  for (const auto& i : checklist.items) {
    const auto tone = i.state == ItemState::Done ? Tone::Good : i.state == ItemState::NotDone ? Tone::Bad : Tone::Plain;
    items.add({both("stage", i.stage), both("state", toned(item_state_name(i.state), tone)), both("item", i.item),
               both("evidence", "observation", i.evidence), both("next", "action", i.next)});
  }
  out.table("items", std::move(items));
  return out;
}

}  // namespace npu_train
