#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

constexpr size_t kRowsOfLayers = 24;

std::string size_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }
double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

using Row = std::pair<std::string, int64_t>;

// Returns the parts of the peak that are worth a row, and the allocator's slack as the last one.
std::vector<Row> components(const MemoryPrediction& p) {
  std::vector<Row> out;
  for (size_t i = 0; i < kMemoryUses; ++i)
    if (p.peak.uses[i] > p.peak.reserved / 2000) out.emplace_back(memory_use_name(static_cast<MemoryUse>(i)), p.peak.uses[i]);
  out.emplace_back("allocator slack", p.peak.reserved - p.peak.allocated);
  return out;
}

// Returns the first `depth` parts of a path: "layer1.0" of "layer1.0.conv1".
std::string shortened(const std::string& path, int depth) {
  size_t end = 0;
  for (int i = 0; i < depth && end != std::string::npos; ++i) end = path.find('.', end == 0 ? 0 : end + 1);
  return path.substr(0, end);
}

// Returns the layers in forward order, grouped by path if there are too many.
std::vector<Row> layer_groups(const MemoryPrediction& p) {
  std::vector<Row> out = p.peak.activations;
  for (int depth = 6; depth >= 1 && out.size() > kRowsOfLayers; --depth) {
    out.clear();
    for (const auto& [name, bytes] : p.peak.activations) {
      const auto group = shortened(name, depth);
      const auto found = std::find_if(out.begin(), out.end(), [&](const Row& row) { return row.first == group; });
      found != out.end() ? found->second += bytes : out.emplace_back(group, bytes).second;
    }
  }
  return out;
}

std::string run_text(const MemoryPrediction& p) {
  return p.model + " with " + p.optimizer + ", " + p.precision + ", checkpointing " + p.checkpointing + ", batch " +
         std::to_string(p.batch) + (p.accumulate > 1 ? " x " + std::to_string(p.accumulate) + " accumulated" : "") +
         (p.ranks > 1 ? "; each of " + std::to_string(p.ranks) + " ranks, " + p.strategy : "");
}

std::string place_text(const MemoryPeak& peak) {
  return peak.phase == "between steps" ? "between steps" : "in the " + peak.phase + (peak.layer.empty() ? "" : " at " + peak.layer);
}

std::string largest_text(int64_t batch) {
  if (batch == 0) return "not even one sample";
  std::string out = "batch " + with_commas(batch);
  std::vector<std::string> rounded;
  if (const auto eight = multiple_below(batch, 8); eight > 0 && eight != batch)
    rounded.push_back(with_commas(eight) + " as a multiple of 8");
  if (const auto power = power_below(batch); power != batch) rounded.push_back(with_commas(power) + " as a power of two");
  return out + (rounded.empty() ? "" : " (" + join(rounded) + ")");
}

std::string verdict_text(const MemoryPrediction& p) {
  if (p.hbm == 0) return "needs " + size_text(p.peak.reserved);
  return std::string(p.fits() ? "fits: " : "does not fit: ") + "needs " + size_text(p.peak.reserved) + " of " + size_text(p.hbm) +
         "; the largest that fits is " + largest_text(p.largest);
}

std::string how_text(const MemoryPrediction& p) {
  return "from one step each with batch " + std::to_string(p.small_batch) + " and batch " + std::to_string(p.large_batch) + " on " +
         p.device + (p.matched ? ", every block extrapolated" : ", the peak of each phase extrapolated");
}

ReportTable sizes_table(const std::string& title, const char* what, const char* part, const std::vector<Row>& rows, int64_t whole) {
  ReportTable out{.title = title};
  for (const auto& [name, bytes] : rows) {
    const double share = whole > 0 ? static_cast<double>(bytes) / static_cast<double>(whole) : 0;
    out.add({shown(what, name), shown("size", bytes_value(bytes)), shown(part, {share, printed("%.1f %%", 100 * share)})});
  }
  return out;
}

int64_t total(const std::vector<Row>& rows) {
  int64_t out = 0;
  for (const auto& [name, bytes] : rows) out += bytes;
  return out;
}

ReportTable variant_table(const MemoryPrediction& p) {
  ReportTable out;
  for (const auto& v : p.variants) {
    const bool bad = !v.problem.empty();
    const auto size = [&](int64_t bytes) { return bad ? ReportValue(bytes, "-") : bytes_value(bytes); };
    out.add({both("precision", p.ranks > 1 ? "" : "precision", v.precision), both("strategy", p.ranks > 1 ? "strategy" : "", v.strategy),
             both("checkpointing", v.checkpointing), both("allocated", "tensors", size(v.allocated)),
             both("reserved", "blocks", size(v.reserved)),
             both("largest_batch", p.hbm > 0 ? "largest batch" : "", p.hbm > 0 && !bad ? Json(v.largest) : Json()),
             data("problem", v.problem), data("chosen", v.chosen),
             shown("note", toned(bad        ? v.problem
                                 : v.chosen ? "this configuration"
                                            : "",
                                 bad ? Tone::Warn : Tone::Plain))});
  }
  return out;
}

LinePlot timeline(const MemoryPrediction& p) {
  LinePlot plot{.title = "Memory of tensors during one step", .x_label = "allocations and frees", .y_label = "MiB"};
  LinePlot::Series series{.name = "in use"};
  std::string phase;
  for (size_t i = 0; i < p.peak.timeline.size(); ++i) {
    const auto& [at, bytes] = p.peak.timeline[i];
    series.x.push_back(static_cast<double>(i));
    series.y.push_back(mib(bytes));
    series.labels.push_back(at);
    if (at != phase && (at == "forward" || at == "backward" || at == "optimizer")) plot.marks.push_back({static_cast<double>(i), at});
    phase = at;
  }
  plot.series.push_back(std::move(series));
  return plot;
}

BarPlot by_layer(const MemoryPrediction& p) {
  BarPlot plot{.title = "Activations kept for the backward", .x_label = "layer, in forward order", .y_label = "MiB"};
  for (const auto& [name, bytes] : p.peak.activations) plot.bars.push_back({name, mib(bytes)});
  return plot;
}

Json document_of(const MemoryPrediction& p) {
  auto uses = Json::object(), phases = Json::object(), layers = Json::array();
  for (size_t i = 0; i < kMemoryUses; ++i) uses.set(memory_use_name(static_cast<MemoryUse>(i)), p.peak.uses[i]);
  uses.set("allocator slack", p.peak.reserved - p.peak.allocated);
  for (const auto& [name, bytes] : p.peak.phases) phases.set(name, bytes);
  for (const auto& [name, bytes] : p.peak.activations) layers.push_back(Json::object({{"layer", name}, {"bytes", bytes}}));
  const auto of_card = [&](int64_t value) { return p.hbm > 0 ? Json(value) : Json(); };  // null: no card was given
  return Json::object({{"model", p.model},
                       {"device", p.device},
                       {"precision", p.precision},
                       {"checkpointing", p.checkpointing},
                       {"optimizer", p.optimizer},
                       {"batch_size", p.batch},
                       {"accumulate_grad_batches", p.accumulate},
                       {"ranks", p.ranks},
                       {"strategy", p.strategy},
                       {"measured_batches", Json::array({p.small_batch, p.large_batch})},
                       {"every_block", p.matched},
                       {"allocated", p.peak.allocated},
                       {"reserved", p.peak.reserved},
                       {"phase", p.peak.phase},
                       {"layer", p.peak.layer},
                       {"components", std::move(uses)},
                       {"phases", std::move(phases)},
                       {"activations", std::move(layers)},
                       {"hbm", of_card(p.hbm)},
                       {"fits", p.hbm > 0 ? Json(p.fits()) : Json()},
                       {"largest_batch", of_card(p.largest)},
                       {"largest_multiple_of_8", of_card(multiple_below(p.largest, 8))},
                       {"largest_power_of_two", of_card(power_below(p.largest))}});
}

}  // namespace

Report report_of(const MemoryPrediction& p) {
  Report out("Memory of " + p.model, document_of(p));
  out.verdict(verdict_text(p), p.hbm == 0 ? Tone::Plain : p.fits() ? Tone::Good : Tone::Bad);
  out.say(run_text(p));
  out.say("predicted " + how_text(p));
  out.verdict("peak " + size_text(p.peak.allocated) + " in tensors, " + place_text(p.peak) + "; " + size_text(p.peak.reserved) +
              " in blocks of a caching allocator");
  out.table("", sizes_table("", "component", "of the peak", components(p), p.peak.reserved));
  if (!p.peak.timeline.empty()) out.plot(timeline(p));
  if (const auto& layers = p.peak.activations; !layers.empty()) {
    out.plot(by_layer(p));
    const auto groups = layer_groups(p);
    out.table("", sizes_table("", "activations by layer", "of all", groups, total(groups)), ReportIn::Text);
    out.table("", sizes_table("Activations by layer", "layer", "of all", layers, total(layers)), ReportIn::Page);
  }
  if (!p.variants.empty())
    out.heading(p.ranks > 1 ? "Other strategies, with and without checkpointing" : "Other precisions, with and without checkpointing");
  out.table("variants", variant_table(p));
  out.notes(p.notes);
  out.say("Workspaces of kernels and the memory of the device's runtime are unknown here; leave some room for them", Tone::Plain,
          ReportIn::Page);
  return out;
}

}  // namespace npu_train
