#include "npu_train/tools/bench/stages.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "figures.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/bench/facts/stages.hpp"

namespace npu_train {
namespace {

using detail::number_or_nan;

constexpr const char* kSection = "stages";

const BenchRow* fastest(const Stage& stage) {
  const BenchRow* best = nullptr;
  for (const auto& run : stage.runs)
    if (run.samples.size() > 0 && (best == nullptr || run.number("step_ms_median") < best->number("step_ms_median"))) best = &run;
  return best;
}

std::vector<double> of_runs(const Stage& stage, const char* key) {
  std::vector<double> out;
  for (const auto& run : stage.runs)
    if (const double value = run.number(key); !std::isnan(value)) out.push_back(value);
  return out;
}

void describe_losses(BenchRow& row, const Stage& stage) {
  const auto losses = of_runs(stage, "loss");
  row.numbers.emplace_back("diverged", static_cast<double>(stage.runs.size() - losses.size()));
  row.numbers.emplace_back("seeds", static_cast<double>(stage.runs.size()));
  if (losses.empty()) return;
  const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
  row.numbers.emplace_back("loss", std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size()));
  row.numbers.emplace_back("loss_low", *low);
  row.numbers.emplace_back("loss_high", *high);
}

// Adds how much of the machine's speed a stage uses. `run`: the fastest run of the stage.
void describe_use(BenchRow& row, const BenchRow& run, const MachineSpeed& machine, double link, bool low_precision) {
  const double seconds = run.number("step_ms_median") / 1e3;
  const auto add = [&](const char* key, double value) {
    if (std::isfinite(value)) row.numbers.emplace_back(key, value);
  };
  const double waited = run.number("parameters_ms"), travelled = run.number("communication_ms");
  if (!std::isnan(travelled))
    row.numbers.emplace_back("share_communication", (travelled + (std::isnan(waited) ? 0 : waited)) / 1e3 / seconds);
  for (const char* key : {"share_exposed", "share_hidden", "sent_bytes"}) add(key, run.number(key));
  const double products = low_precision ? std::max(machine.products, machine.low_products) : machine.products;
  if (products > 0) add("share_of_products", run.number("flops") / seconds / (products * machine.devices));
  if (machine.copies > 0) add("share_of_copies", run.number("moved_bytes") / seconds / (machine.copies * machine.devices));
  if (link > 0) add("share_of_link", run.number("sent_bytes") / seconds / link);
}

BenchRow row_of(const Stage& stage, size_t number, double first_ms, const MachineSpeed& machine, double link, bool low_precision) {
  BenchRow row{.section = kSection, .name = std::to_string(number) + " " + stage.name, .failure = stage.failure};
  const auto* best = fastest(stage);
  if (best == nullptr) {
    if (!stage.runs.empty()) describe_losses(row, stage);
    return row;
  }
  const double ms = best->number("step_ms_median");
  for (const char* key : {"ranks", "batch", "samples_per_s", "step_ms_median"}) row.numbers.emplace_back(key, best->number(key));
  if (first_ms > 0) row.numbers.emplace_back("speedup", first_ms / ms);
  const auto memory = of_runs(stage, "memory_bytes");
  row.numbers.emplace_back("memory_bytes", *std::max_element(memory.begin(), memory.end()));
  describe_use(row, *best, machine, link, low_precision);
  describe_losses(row, stage);
  row.samples = best->samples;
  return row;
}

// Adds notes on shares above kMostOfAll, with a likely cause.
void doubt(BenchReport& report, const BenchRow& row, const MachineSpeed& machine, bool low_precision) {
  const auto add = [&](const char* key, const std::string& what, const std::string& cause) {
    if (row.number(key) > kMostOfAll)
      report.notes.push_back("doubtful: " + row.name + " reaches " + percentage(row.number(key)) + " of the " + what + ": " + cause);
  };
  const std::string busy =
      "other programs slowed the machine down while its speed was measured, after the trainings; repeat it on an idle machine";
  add("share_of_products", "measured products",
      low_precision && machine.low_products == 0
          ? "they were measured in fp32 only, since the device has no units for this precision, or " + busy
          : busy);
  add("share_of_copies", "measured memory bandwidth",
      "its tensors fit into the processor's caches, which are faster than the memory, or " + busy);
  add("share_of_link", "measured link", busy);
}

}  // namespace

std::vector<Stage> training_stages(const RunConfig& config, int ranks, const Parts& parts) {
  ConfigProblems problems;
  const auto model = parts.models.resolve(config.model, "model", problems);
  problems.throw_if_any();
  const bool fuses = model.options.find("fused_kernels") != nullptr;
  Stage baseline{.name = "baseline",
                 .settings = {"trainer.strategy=ddp", "precision=32-true", "dist.preset=none", "dist.group_size=none",
                              "dist.reduction=auto", "dist.compression=none", "dist.in_flight=0", "dist.shard_size=auto"}};
  if (fuses) baseline.settings.emplace_back("model.fused_kernels=false");
  Stage fusion{.name = "+ fusion"};
  if (fuses)
    fusion.settings.emplace_back("model.fused_kernels=auto");
  else
    fusion.failure = config.model.name + " has no option fused_kernels";
  // Lists each value separately, since a preset sets only values that a configuration does not set.
  Stage communication{.name = "+ communication", .settings = {"dist.preset=communication"}};
  auto preset = DistOptions::preset_values("communication");
  constexpr int kGroup = 8;
  if (ranks <= kGroup) preset.set("group_size", ConfigNode(int64_t{std::max(1, ranks / 2)}));
  for (const auto& value : preset.members()) communication.settings.push_back("dist." + value.key + "=" + value.value.scalar());
  const bool mixed = config.precision.ends_with("-mixed");
  return {std::move(baseline),
          {.name = "+ sharding", .settings = {"trainer.strategy=zero2"}},
          {.name = "+ mixed precision", .settings = {"precision=" + (mixed ? config.precision : std::string("bf16-mixed"))}},
          std::move(fusion),
          std::move(communication)};
}

void add_stages(BenchReport& report, const std::vector<Stage>& stages, const MachineSpeed& machine) {
  double link = 0;
  for (const auto& stage : stages)
    for (const double speed : of_runs(stage, "link_bytes_per_s")) link = std::max(link, speed);
  const auto* first = stages.empty() ? nullptr : fastest(stages.front());
  bool low_precision = false;
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto& stage = stages[i];
    for (const auto& setting : stage.settings)
      low_precision = low_precision || (setting.starts_with("precision=") && setting != "precision=32-true");
    report.rows.push_back(row_of(stage, i + 1, first == nullptr ? 0 : first->number("step_ms_median"), machine, link, low_precision));
    doubt(report, report.rows.back(), machine, low_precision);
    if (!stage.settings.empty()) report.notes.push_back(stage.name + ": " + join(stage.settings, " "));
  }
  if (link > 0) report.notes.push_back("link: a rank sends " + short_number(link * 1e-9, 3) + " GB/s while all ranks exchange 4 MiB parts");
}

std::vector<PublishedStage> published_stages() {
  std::vector<PublishedStage> out;
  for (const auto& row : detail::facts_texts(facts::stages, "stages.tsv", 8))
    out.push_back({.name = row[0],
                   .stability = row[4],
                   .seconds_per_step = number_or_nan(row[1]),
                   .memory_gb = number_or_nan(row[2]),
                   .communication_percent = number_or_nan(row[3]),
                   .compute_percent = number_or_nan(row[5]),
                   .memory_percent = number_or_nan(row[6]),
                   .link_percent = number_or_nan(row[7])});
  return out;
}

std::string published_stages_of() { return detail::facts_note(facts::stages, "of"); }

}  // namespace npu_train
