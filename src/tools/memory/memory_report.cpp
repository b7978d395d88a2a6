#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/report/html_page.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/text_table.hpp"

namespace npu_train {
namespace {

constexpr size_t kRowsOfLayers = 24;

std::string size_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }
double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string percent_text(int64_t part, int64_t whole) {
  return printed("%.1f %%", whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

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

}  // namespace

std::string to_text(const MemoryPrediction& p, size_t width) {
  std::string out = verdict_text(p) + "\n\n" + run_text(p) + "\n" + how_text(p) + "\n\n";
  out += "peak " + size_text(p.peak.allocated) + " in tensors, " + place_text(p.peak) + "; " + size_text(p.peak.reserved) +
         " in blocks of a caching allocator\n\n";
  TextTable table({"component", "size", "of the peak"});
  for (const auto& [name, bytes] : components(p)) table.add_row({name, size_text(bytes), percent_text(bytes, p.peak.reserved)});
  out += table.str(width);
  if (const auto layers = layer_groups(p); !layers.empty()) {
    int64_t all = 0;
    for (const auto& [name, bytes] : layers) all += bytes;
    TextTable by_layer({"activations by layer", "size", "of all"});
    for (const auto& [name, bytes] : layers) by_layer.add_row({name, size_text(bytes), percent_text(bytes, all)});
    out += "\n" + by_layer.str(width);
  }
  if (!p.variants.empty()) {
    std::vector<std::string> columns = {p.ranks > 1 ? "strategy" : "precision", "checkpointing", "tensors", "blocks"};
    if (p.hbm > 0) columns.push_back("largest batch");
    columns.push_back("");
    TextTable variants(columns);
    for (const auto& v : p.variants) {
      std::vector<std::string> row = {p.ranks > 1 ? v.strategy : v.precision, v.checkpointing,
                                      v.problem.empty() ? size_text(v.allocated) : "-", v.problem.empty() ? size_text(v.reserved) : "-"};
      if (p.hbm > 0) row.push_back(v.problem.empty() ? with_commas(v.largest) : "-");
      row.push_back(!v.problem.empty() ? v.problem : v.chosen ? "this configuration" : "");
      variants.add_row(row);
    }
    out += "\n" + variants.str(width);
  }
  for (const auto& note : p.notes) out += "\nnote: " + note + "\n";
  return out;
}

Json to_json(const MemoryPrediction& p) {
  auto uses = Json::object(), layers = Json::array(), phases = Json::object(), variants = Json::array(), notes = Json::array();
  for (size_t i = 0; i < kMemoryUses; ++i) uses.set(memory_use_name(static_cast<MemoryUse>(i)), p.peak.uses[i]);
  uses.set("allocator slack", p.peak.reserved - p.peak.allocated);
  for (const auto& [name, bytes] : p.peak.activations) layers.push_back(Json::object({{"layer", name}, {"bytes", bytes}}));
  for (const auto& [name, bytes] : p.peak.phases) phases.set(name, bytes);
  for (const auto& v : p.variants)
    variants.push_back(Json::object({{"precision", v.precision},
                                     {"strategy", v.strategy},
                                     {"checkpointing", v.checkpointing},
                                     {"allocated", v.allocated},
                                     {"reserved", v.reserved},
                                     {"largest_batch", p.hbm > 0 && v.problem.empty() ? Json(v.largest) : Json()},
                                     {"problem", v.problem},
                                     {"chosen", v.chosen}}));
  for (const auto& note : p.notes) notes.push_back(note);
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
                       {"largest_power_of_two", of_card(power_below(p.largest))},
                       {"variants", std::move(variants)},
                       {"notes", std::move(notes)}});
}

namespace {

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

HtmlTable variant_table(const MemoryPrediction& p) {
  HtmlTable table{.columns = {{p.ranks > 1 ? "Strategy" : "Precision"}, {"Checkpointing"}, {"Tensors, MiB", true}, {"Blocks, MiB", true}}};
  if (p.hbm > 0) table.columns.push_back({"Largest batch", true});
  table.columns.push_back({"Note"});
  for (const auto& v : p.variants) {
    const bool bad = !v.problem.empty();
    const auto number = [&](double value) { return bad ? HtmlTable::Cell{"-"} : HtmlTable::Cell::number(value, Tone::Plain, 5); };
    std::vector<HtmlTable::Cell> row = {
        {p.ranks > 1 ? v.strategy : v.precision}, {v.checkpointing}, number(mib(v.allocated)), number(mib(v.reserved))};
    if (p.hbm > 0) row.push_back(number(static_cast<double>(v.largest)));
    row.push_back({bad ? v.problem : v.chosen ? "this configuration" : "", {}, bad ? Tone::Warn : Tone::Plain});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string to_html(const MemoryPrediction& p) {
  HtmlPage page("Memory of " + p.model);
  page.paragraph("This training " + verdict_text(p) + ".", p.hbm == 0 ? Tone::Plain : p.fits() ? Tone::Good : Tone::Bad);
  page.paragraph(run_text(p) + ".");
  page.facts({{"tensors at the peak", size_text(p.peak.allocated)},
              {"blocks of a caching allocator", size_text(p.peak.reserved)},
              {"the peak is", place_text(p.peak)},
              {"largest batch", p.hbm > 0 ? with_commas(p.largest) : "no card size given"}});
  HtmlTable parts{.title = "At the peak", .columns = {{"Component"}, {"MiB", true}, {"%", true}}};
  for (const auto& [name, bytes] : components(p))
    parts.rows.push_back(
        {{name},
         HtmlTable::Cell::number(mib(bytes)),
         HtmlTable::Cell::number(100 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, p.peak.reserved)), Tone::Plain,
                                 3)});
  page.table(parts);
  if (!p.peak.timeline.empty()) page.plot(timeline(p));
  if (!p.peak.activations.empty()) page.bars(by_layer(p));
  if (!p.variants.empty()) {
    page.heading(p.ranks > 1 ? "Other strategies, with and without checkpointing" : "Other precisions, with and without checkpointing");
    page.table(variant_table(p));
  }
  if (!p.peak.activations.empty()) {
    HtmlTable layers{.title = "Activations by layer", .columns = {{"Layer"}, {"MiB", true}}};
    for (const auto& [name, bytes] : p.peak.activations) layers.rows.push_back({{name}, HtmlTable::Cell::number(mib(bytes))});
    page.table(layers);
  }
  for (const auto& note : p.notes) page.paragraph(note);
  page.paragraph("Predicted " + how_text(p) +
                 ". Workspaces of kernels and the memory of the device's runtime are unknown here; leave some room for them.");
  return page.str();
}

}  // namespace npu_train
