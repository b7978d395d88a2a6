#include "npu_train/tools/align/run_comparison.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/environment.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/tools/align/monitor_log.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/align/compare_parts.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train {
namespace fs = std::filesystem;
using detail::json_list;
namespace {

enum class What { RunFolder, History, Config, Environment, Monitor, Unknown };

What kind_of(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return fs::exists(path / "config.yaml", error) ? What::RunFolder : What::Unknown;
  if (path.filename() == "environment.json") return What::Environment;
  const auto extension = to_lower(path.extension().string());
  if (extension == ".csv" && is_monitor(path)) return What::Monitor;
  if (extension == ".yaml" || extension == ".yml") return What::Config;
  return extension == ".csv" || extension == ".json" || extension == ".jsonl" || extension == ".log" ? What::History : What::Unknown;
}

bool any_numeric(const std::optional<std::vector<ConfigDifference>>& list) {
  return list && std::any_of(list->begin(), list->end(), [](const auto& d) { return d.numeric; });
}

// Reads and compares both configurations. If both are of this program, completes them with defaults first, so that a default that only one
// side sets explicitly is no difference.
void read_configs(const fs::path& a, const fs::path& b, const RunComparisonOptions& options, RunComparison& out) {
  const auto read = [](const fs::path& path) { return detail::as_input([&] { return load_yaml(path.string()); }); };
  auto config_a = read(a), config_b = read(b);
  if (options.complete_config) {
    std::string why_a, why_b;
    auto whole_a = options.complete_config(config_a, why_a), whole_b = options.complete_config(config_b, why_b);
    if (whole_a && whole_b) {
      config_a = std::move(*whole_a);
      config_b = std::move(*whole_b);
    } else if (whole_a || whole_b) {
      out.notes.push_back((whole_a ? out.b + ": " + why_b : out.a + ": " + why_a) +
                          "; no defaults were filled in, and both are compared as written");
    }
  }
  out.config = compare_configs(config_a, config_b);
}

// Reads and compares both histories. The mean loss of an epoch is not comparable with the loss of a step, so if one side has only epochs,
// the epochs of the other side are read, too.
void read_histories(const fs::path& a, const fs::path& b, const RunComparisonOptions& options, RunComparison& out) {
  auto history_a = read_history(a, options.columns_a), history_b = read_history(b, options.columns_b);
  for (const auto* h : {&history_a, &history_b})
    check(history_a.of_end == history_b.of_end || !h->of_end, ErrorKind::Data, "history", h->source,
          ": the run ended in its first epoch, so its only loss is that of the validation at its end, but the other side has "
          "losses of "
          "the training; hint: metrics.csv of the run's folder has its steps");
  if (history_a.of_epochs && !history_b.of_epochs) history_b = read_history(b, options.columns_b, HistoryRows::Epochs);
  if (history_b.of_epochs && !history_a.of_epochs) history_a = read_history(a, options.columns_a, HistoryRows::Epochs);
  if (history_a.of_epochs != history_b.of_epochs)
    out.notes.push_back(std::string("the losses of ") + (history_a.of_epochs ? "A" : "B") +
                        " are means over epochs; those of the other side may be of single steps");
  out.history = compare_histories(history_a, history_b, options.history);
}

void read_run_folders(const fs::path& a, const fs::path& b, const RunComparisonOptions& options, RunComparison& out) {
  read_configs(a / "config.yaml", b / "config.yaml", options, out);
  const auto environment_a = a / "environment.json", environment_b = b / "environment.json";
  if (fs::exists(environment_a) && fs::exists(environment_b))
    out.environment = compare_environments(read_environment(environment_a), read_environment(environment_b));
  else
    out.notes.push_back("not both have an environment.json; environments were not compared");
  read_histories(a, b, options, out);
  const bool in_a = fs::exists(a / "monitor.csv"), in_b = fs::exists(b / "monitor.csv");
  if (in_a && in_b) try {
      out.monitor = compare_monitors(a / "monitor.csv", b / "monitor.csv", options.history);
    } catch (const Error& e) {  // for example, the networks differ; the histories decide
      out.notes.push_back(std::string("monitors were not compared: ") + e.what());
    }
  if (in_a != in_b) out.notes.push_back(std::string("only ") + (in_a ? "A" : "B") + " has a monitor.csv; monitors were not compared");
}

void add_differences(Report& out, const std::optional<std::vector<ConfigDifference>>& list, const std::string& what) {
  if (!list) return out.data({{what, {}}});
  out.heading(what == "config" ? "Configuration" : "Environment");
  if (list->empty()) out.say((what == "config" ? "configuration" : what) + ": equal", Tone::Good);
  ReportTable table;
  for (const auto& d : *list)
    table.add({both("path", what == "config" ? "configuration" : what, d.path), both("a", "A", d.a), both("b", "B", d.b),
               both("numeric", "may change numbers", {d.numeric, d.numeric ? "yes" : "no", d.numeric ? Tone::Warn : Tone::Plain})});
  out.table(what, std::move(table));
}

Json step_json(const std::optional<int64_t>& step) { return step ? Json(*step) : Json(); }

Json history_json(const HistoryComparison& h) {
  auto rows = Json::array();
  for (const auto& r : h.rows)
    rows.push_back(Json::object(
        {{"step", r.step}, {"loss_a", r.loss_a}, {"loss_b", r.loss_b}, {"relative", r.relative}, {"lr_a", r.lr_a}, {"lr_b", r.lr_b}}));
  return Json::object({{"agrees", h.agrees},
                       {"complete", h.complete},
                       {"steps", static_cast<int64_t>(h.rows.size())},
                       {"mean_relative", h.mean_relative},
                       {"last_quarter_relative", h.last_quarter_relative},
                       {"max_relative", h.max_relative},
                       {"max_step", h.max_step},
                       {"first_unequal", step_json(h.first_unequal)},
                       {"first_beyond", step_json(h.first_beyond)},
                       {"diverged", step_json(h.diverged)},
                       {"first_not_finite", step_json(h.first_not_finite)},
                       {"first_unproven", step_json(h.first_unproven)},
                       {"first_lr", step_json(h.first_lr)},
                       {"only_a", static_cast<int64_t>(h.only_a.size())},
                       {"only_b", static_cast<int64_t>(h.only_b.size())},
                       {"sentences", json_list(h.sentences)},
                       {"likely", json_list(h.likely)},
                       {"advice", json_list(h.advice)},
                       {"notes", json_list(h.notes)},
                       {"rows", std::move(rows)}});
}

std::vector<ReportField> fields_of(const HistoryRow& r, bool with_lr) {
  const auto lr = [&](double value) { return with_lr ? ReportValue(value, shortest(value)) : ReportValue(Json()); };
  return {shown("step", {r.step, std::to_string(r.step)}),
          shown("loss A", number_value(r.loss_a, 6)),
          shown("loss B", number_value(r.loss_b, 6)),
          shown("relative", number_value(r.relative, 3)),
          shown("lr A", lr(r.lr_a)),
          shown("lr B", lr(r.lr_b))};
}

// Returns the steps that differ, worst first.
ReportTable worst_steps(const HistoryComparison& h, size_t most) {
  std::vector<const HistoryRow*> rows;
  for (const auto& r : h.rows)
    if (r.relative != 0) rows.push_back(&r);
  std::stable_sort(rows.begin(), rows.end(), [](const auto* x, const auto* y) {
    return std::isnan(x->relative) != std::isnan(y->relative) ? std::isnan(x->relative) : x->relative > y->relative;
  });
  if (most > 0 && rows.size() > most) rows.resize(most);
  ReportTable out{.all = h.rows.size(), .order = "worst first"};
  for (const auto* r : rows) out.add(fields_of(*r, h.lr_compared));
  return out;
}

// Returns "settings that may change numbers differ: 2 of the configuration and 1 of the environment"; "" if none differ.
std::string told_differences(const RunComparison& c) {
  const auto count = [](const std::optional<std::vector<ConfigDifference>>& list) {
    return list ? std::count_if(list->begin(), list->end(), [](const auto& d) { return d.numeric; }) : 0;
  };
  std::vector<std::string> parts;
  if (const auto n = count(c.config); n > 0) parts.push_back(with_commas(n) + " of the configuration");
  if (const auto n = count(c.environment); n > 0) parts.push_back(with_commas(n) + " of the environment");
  return parts.empty() ? "" : "settings that may change numbers differ: " + join(parts, " and ");
}

// Whether fewer than half of all steps are common to both sides.
bool has_few_steps(const HistoryComparison& h) { return !h.complete && h.rows.size() < h.only_a.size() + h.only_b.size(); }

std::string few_steps_text(const HistoryComparison& h) {
  const auto common = static_cast<int64_t>(h.rows.size()), others = static_cast<int64_t>(h.only_a.size() + h.only_b.size());
  return "only " + with_commas(common) + " of " + detail::counted(common + others, "step") + (common == 1 ? " is" : " are") +
         " in both histories, and nothing is known of the others: ";
}

std::string verdict(const RunComparison& c) {
  if (!c.history && c.monitor) return c.agrees() ? "the monitors agree" : "the monitors differ";
  if (!c.history) return c.agrees() ? "no difference may change numbers" : "differences may change numbers";
  const std::string told = told_differences(c);
  const std::string out = !c.agrees()           ? "the histories differ"
                          : c.history->complete ? "the histories agree"
                                                : "the histories agree at their common steps; the other steps were not compared";
  const std::string few = has_few_steps(*c.history) ? few_steps_text(*c.history) : "";
  return few + (told.empty() ? out : out + "; " + told);
}

void add_curves(Report& out, const HistoryComparison& h) {
  LinePlot loss{.title = "Loss", .x_label = "step", .y_label = "loss", .series = {{"A"}, {"B"}}};
  LinePlot rate{.title = "Learning rate", .x_label = "step", .y_label = "lr", .series = {{"A"}, {"B"}}};
  LinePlot apart{
      .title = "Difference of the losses", .x_label = "step", .y_label = "relative", .log_y = true, .series = {{"|A - B| / |B|"}}};
  for (const auto& r : h.rows) {
    const std::vector<std::pair<LinePlot::Series*, double>> points = {{&loss.series[0], r.loss_a},
                                                                      {&loss.series[1], r.loss_b},
                                                                      {&rate.series[0], r.lr_a},
                                                                      {&rate.series[1], r.lr_b},
                                                                      {&apart.series[0], r.relative}};
    for (const auto& [series, y] : points) series->x.push_back(static_cast<double>(r.step)), series->y.push_back(y);
  }
  if (h.diverged) loss.marks.push_back({static_cast<double>(*h.diverged), "divergence"});
  out.plot(std::move(loss));
  out.plot(std::move(apart));
  if (h.lr_compared) out.plot(std::move(rate));
}

void add_history(Report& out, const HistoryComparison& h) {
  out.remarks("note", h.notes);
  for (const auto& text : h.sentences) out.say(text);
  for (size_t i = 0; i < h.likely.size(); ++i) out.remarks("likely", {h.likely[i] + (i < h.advice.size() ? "; try: " + h.advice[i] : "")});
  add_curves(out, h);
  out.late_table([&h](size_t most) { return worst_steps(h, most); }, ReportIn::Text);
  out.late_table(
      [&h](size_t /*most*/) {
        ReportTable all{.title = "Steps"};
        for (const auto& r : h.rows) all.add(fields_of(r, h.lr_compared));
        return all;
      },
      ReportIn::Page);
}

Json place_json(const std::optional<MonitorDifference>& d) {
  if (!d) return {};
  return Json::object({{"what", d->what},
                       {"name", d->name},
                       {"step", d->step},
                       {"attempt", d->attempt},
                       {"norm_a", d->norm_a},
                       {"norm_b", d->norm_b},
                       {"relative", d->relative}});
}

// Returns the tensors whose norms differ, worst first.
ReportTable worst_tensors(const MonitorComparison& m, size_t most) {
  std::vector<const MonitorDifference*> rows;
  for (const auto& d : m.tensors)
    if (d.relative > 0) rows.push_back(&d);
  std::stable_sort(rows.begin(), rows.end(), [](const auto* x, const auto* y) { return x->relative > y->relative; });
  ReportTable out{.title = "Monitored norms", .all = m.tensors.size(), .order = "worst first"};
  if (most > 0 && rows.size() > most) rows.resize(most);
  for (const auto* d : rows)
    out.add({shown("what", d->what), shown("name", d->name), shown("step of largest", {d->step, std::to_string(d->step)}),
             shown("norm A", number_value(d->norm_a, 5)), shown("norm B", number_value(d->norm_b, 5)),
             shown("relative", number_value(d->relative, 3)), shown("mean relative", number_value(d->mean_relative, 3))});
  return out;
}

void add_monitor(Report& out, const MonitorComparison& m) {
  out.heading("Monitor");
  for (const auto& text : sentences_of(m)) out.say(text);
  out.late_table([&m](size_t most) { return worst_tensors(m, most); }, ReportIn::All);
  out.data({{"monitor", Json::object({{"agrees", m.agrees},
                                      {"windows", m.windows},
                                      {"tensors", static_cast<int64_t>(m.tensors.size())},
                                      {"mean_relative", m.mean_relative},
                                      {"first_unequal", place_json(m.first_unequal)},
                                      {"first_beyond", place_json(m.first_beyond)},
                                      {"only_a", json_list(m.only_a)},
                                      {"only_b", json_list(m.only_b)}})}});
}

}  // namespace

std::string kind_of_run_file(const fs::path& path) {
  switch (kind_of(path)) {
    case What::RunFolder:
      return "a run folder";
    case What::History:
      return "a loss history";
    case What::Config:
      return "a configuration";
    case What::Environment:
      return "an environment";
    case What::Monitor:
      return "a monitor";
    case What::Unknown:
      break;
  }
  return "";
}

bool RunComparison::agrees() const {
  if (history) return history->agrees;
  return monitor ? monitor->agrees : !any_numeric(config) && !any_numeric(environment);
}

RunComparison compare_runs(const fs::path& a, const fs::path& b, const RunComparisonOptions& options) {
  RunComparison out{.a = a.string(), .b = b.string()};
  for (const auto& path : {a, b}) check(fs::exists(path), ErrorKind::Data, "compare", path.string(), ": no such file or folder");
  auto kind = kind_of(a);
  const auto other = kind_of(b);
  const bool with_log = (kind == What::RunFolder && other == What::History) || (kind == What::History && other == What::RunFolder);
  if (with_log) kind = What::History;
  check((with_log || kind == other) && kind != What::Unknown, ErrorKind::Usage, "compare", out.a, " and ", out.b,
        ": not of the same kind; allowed: two dumps, two run folders, two histories (.csv, .json, .jsonl), two checkpoints (a folder, "
        ".safetensors, "
        ".pth), two configurations (.yaml), two monitors (monitor.csv)");
  if (kind == What::RunFolder) read_run_folders(a, b, options, out);
  if (kind == What::History) read_histories(a, b, options, out);
  if (kind == What::Config) read_configs(a, b, options, out);
  if (kind == What::Monitor) out.monitor = compare_monitors(a, b, options.history);
  if (kind == What::Environment) out.environment = compare_environments(read_environment(a), read_environment(b));
  return out;
}

Report report_of(const RunComparison& comparison) {
  Report out("Comparison of two runs", Json::object({{"a", comparison.a},
                                                     {"b", comparison.b},
                                                     {"agrees", comparison.agrees()},
                                                     {"complete", !comparison.history || comparison.history->complete},
                                                     {"summary", verdict(comparison)}}));
  const bool few = comparison.history && has_few_steps(*comparison.history);
  out.facts({shown("A", comparison.a), shown("B", comparison.b)}, ReportIn::Page);
  out.say(verdict(comparison), !comparison.agrees() ? Tone::Bad : few ? Tone::Warn : Tone::Good);
  out.say("A: " + comparison.a, Tone::Plain, ReportIn::Text);
  out.say("B: " + comparison.b, Tone::Plain, ReportIn::Text);
  if (comparison.history) add_history(out, *comparison.history);
  if (comparison.monitor) add_monitor(out, *comparison.monitor);
  out.late_data("history", [&] { return comparison.history ? history_json(*comparison.history) : Json(); });
  add_differences(out, comparison.config, "config");
  add_differences(out, comparison.environment, "environment");
  out.notes(comparison.notes);
  return out;
}

std::string to_csv(const RunComparison& comparison) {
  if (!comparison.history && comparison.monitor) {
    auto out = csv_row({"What", "Name", "Step", "Norm A", "Norm B", "Relative", "Mean relative"});
    for (const auto& d : comparison.monitor->tensors)
      out += csv_row({d.what, d.name, std::to_string(d.step), shortest(d.norm_a), shortest(d.norm_b), shortest(d.relative),
                      shortest(d.mean_relative)});
    return out;
  }
  if (!comparison.history) {
    auto out = csv_row({"What", "Key", "A", "B", "May change numbers"});
    for (const auto& [what, list] : {std::pair("configuration", &comparison.config), std::pair("environment", &comparison.environment)})
      if (*list)
        for (const auto& d : **list) out += csv_row({what, d.path, d.a, d.b, d.numeric ? "yes" : "no"});
    return out;
  }
  auto out = csv_row({"Step", "Loss A", "Loss B", "Absolute", "Relative", "LR A", "LR B"});
  for (const auto& r : comparison.history->rows)
    out += csv_row({std::to_string(r.step), shortest(r.loss_a), shortest(r.loss_b), shortest(r.absolute), shortest(r.relative),
                    shortest(r.lr_a), shortest(r.lr_b)});
  return out;
}

}  // namespace npu_train
