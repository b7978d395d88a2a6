#include "npu_train/tools/align/dump_section.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/precision/emulation.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "npu_train/train/loop.hpp"
#include "tools/align/msprobe_config.hpp"
#include "tools/align/rank_recorder.hpp"

namespace npu_train {
namespace {

using Facts = std::map<std::string, std::string>;

/// Returns the facts that determine the rounding of a run.
Facts facts_of(const RunView& run) {
  const auto dtype = run.precision->low_precision_dtype();
  Facts facts = {{"device", run.device.str()},
                 {"precision", run.precision->name()},
                 {"memory_format", run.loop->parts().train_loader->options().channels_last ? "channels_last" : "contiguous"}};
  if (dtype != at::kFloat && run.device.is_cpu())
    facts["cpu_low_precision"] = emulates(cpu_low_precision_of(run.config.cpu_low_precision), dtype) ? "emulated" : "native";
  const auto* model = run.resolved.find("model");
  const auto scalar = [&](const char* key) {
    const auto* node = model != nullptr && model->is_map() ? model->find(key) : nullptr;
    return node != nullptr && node->is_scalar() ? std::optional(node->scalar()) : std::nullopt;
  };
  if (const auto name = scalar("name")) facts["model"] = *name;
  if (const auto fused = scalar("fused_kernels")) facts["fused_kernels"] = run.device.is_cpu() ? *fused : "false";  // only CPUs have them
  const auto& trainer = run.config.trainer;
  facts["gradient_clip"] =
      trainer.gradient_clip_val > 0 ? trainer.gradient_clip_algorithm + " " + shortest(trainer.gradient_clip_val) : "none";
  return facts;
}

// The section `dump` of a configuration: the options of a Dumper, and a file with some of them. `config` is the path of this file; "" once
// the file is read.
struct DumpSection : DumpOptions {
  std::string config{};
  static const ConfigTable<DumpSection>& config_table() {
    static const auto table = ConfigTable<DumpSection>("dump").inherited<DumpOptions>().field(
        "config", &DumpSection::config, "config.json of msprobe, whose keys are used where this section has none");
    return table;
  }
};

// This overload is preferred to the template, which binds other sections. It replaces the path of the file by the options in the file, so
// that the configuration that a run saves does not depend on a file that may move.
void bind_into(DumpSection& section, const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
  const auto before = problems.all().size();
  bind_into<DumpSection>(section, node, path, problems);
  if (section.config.empty() || problems.all().size() > before) return;
  const auto is_given = [&](const char* key) {
    const auto* given = node.find(key);
    return given != nullptr && !given->is_null();
  };
  try {
    detail::apply_msprobe_config(std::exchange(section.config, {}), is_given, section);
  } catch (const Error& e) {
    problems.add(node.mark(), e.where(), e.message());
  }
}

class DumpObserver final : public RunObserver {
 public:
  explicit DumpObserver(DumpOptions options) : options_(std::move(options)) {}

  void on_start(const RunView& run, const std::string& run_dir) override {
    if (dumper_) return;
    check(!run.strategy->shards(), ErrorKind::Usage, "dump",
          "records gradients of complete parameters, and trainer.strategy=", run.config.trainer.strategy,
          " gives each rank a part of them; hint: trainer.strategy=ddp, which has the same bits with the same dist.reduce and "
          "dist.reduction");
    // only the main rank has a run folder
    if (options_.dir.empty()) options_.dir = run.strategy->ranks().from_main(run_dir.empty() ? "dump" : run_dir + "/dump");
    for (const auto rank : options_.ranks)
      if (rank >= run.strategy->ranks().size())
        log_warning("dump.ranks: there is no rank ", rank, "; this run has ", run.strategy->ranks().size());
    dumper_.emplace(options_, dumped_model(*run.task), run.strategy->ranks().rank(), facts_of(run));
    dumper_->watch(*run.optimizer, run.precision);
    if (run.strategy->ranks().size() > 1)  // before dumper_, whose folders RankRecorder would otherwise remove as those of an earlier run
      run.loop->observers().add(
          &ranks_.emplace(options_, run.strategy->ranks(), *run.loop->parts().parameters, *run.optimizer, run.precision));
    run.loop->observers().add(&*dumper_);
    log_info("dump: ", options_.level, " ", options_.task, " in ", options_.dir);
  }

 private:
  DumpOptions options_;
  std::optional<Dumper> dumper_;
  std::optional<detail::RankRecorder> ranks_;
};

}  // namespace

void add_dump(Parts& parts) {
  parts.observers.add_section<DumpSection>(
      "dump", "records the values of a run, layer by layer, for npu_tool compare",
      [](const DumpSection& section) { return std::make_unique<DumpObserver>(section); },
      [](const DumpSection& section) { StepRanges{section.steps}; });
}

}  // namespace npu_train
