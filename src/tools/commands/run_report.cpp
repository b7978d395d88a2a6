#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "npu_train/core/median.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/config_diff.hpp"
#include "run_record.hpp"

namespace npu_train::cli {
namespace {

using Runs = std::vector<RunRecord>;

// The values of one column, from the rows of one phase.
struct LoggedCurve {
  std::vector<double> step, value;
  bool any() const { return !value.empty(); }
};

LoggedCurve curve_of(const RunRecord& run, const std::string& phase, const std::string& column) {
  LoggedCurve out;
  if (!run.rows.has(column)) return out;
  const auto value = run.rows.numbers(column);
  const auto at = run.rows.index("phase"), cell = run.rows.index(column);
  for (size_t i = 0; i < value.size(); ++i) {
    const auto& row = run.rows.rows[i];
    if (row[at] != phase || row[cell].empty()) continue;
    out.step.push_back(run.steps[i]), out.value.push_back(value[i]);
  }
  return out;
}

// Returns the curve of single steps, or of the means of epochs if no step was logged.
LoggedCurve training_curve(const RunRecord& run, const std::string& column) {
  auto steps = curve_of(run, "train", column);
  return steps.any() ? steps : curve_of(run, "epoch", column);
}

// Returns the columns that at least one run has, in the order of the files.
std::vector<std::string> columns_of(const Runs& runs) {
  std::vector<std::string> out;
  for (const auto& run : runs)
    for (const auto& name : run.rows.columns)
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  return out;
}

// Returns the columns of the loss, of the task's metrics and of the program's own values, that is, all except those that every run has.
std::vector<std::string> metrics_of(const Runs& runs) {
  static const std::set<std::string_view> of_every_run = {"epoch",
                                                          "step",
                                                          "phase",
                                                          "lr",
                                                          "grad_norm",
                                                          "loss_scale",
                                                          "skipped",
                                                          "samples_per_second",
                                                          "tokens_per_second",
                                                          "data_wait",
                                                          "seconds",
                                                          "flops_per_second",
                                                          "mfu"};
  auto out = columns_of(runs);
  std::erase_if(out, [](const auto& name) { return of_every_run.count(name) > 0; });
  return out;
}

// Returns the text of a setting such as "optimizer.lr"; "-" if it is not set.
std::string setting(const RunRecord& run, std::string_view path) {
  const ConfigNode* node = &run.config;
  for (size_t begin = 0; node != nullptr && begin <= path.size();) {
    const auto end = std::min(path.find('.', begin), path.size());
    node = node->find(path.substr(begin, end - begin));
    begin = end + 1;
  }
  if (node == nullptr || node->is_null()) return "-";
  return node->is_scalar() ? node->scalar() : to_yaml_line(*node);
}

// Epochs of a run, as history.json contains them.
struct Epochs {
  explicit Epochs(const RunRecord& run) : where(run.name + "/history.json") {
    if (const auto* list = run.history.find("epochs")) items = list->items(where);
  }
  std::vector<double> values(const char* key) const {
    std::vector<double> out;
    for (const auto& item : items)
      if (const auto* value = item.find(key)) out.push_back(value->number(where));
    return out;
  }
  double sum(const char* key) const {
    double out = 0;
    for (const auto value : values(key)) out += value;
    return out;
  }

  std::string where;
  std::vector<Json> items;
};

std::string end_of(const RunRecord& run) {
  const auto* reason = run.history.find("reason");
  if (reason != nullptr) return reason->text(run.name + "/history.json");
  return run.diverged ? "none recorded: the run diverged, and its folder diverged has the state"
                      : "none recorded: the run has not ended, or was killed";
}

// Returns the number of the run's steps; steps for which a program logged values do not count.
int64_t steps_of(const RunRecord& run) {
  const auto phase = run.rows.index("phase");
  double out = 0;
  for (size_t i = 0; i < run.steps.size(); ++i)
    if (run.rows.rows[i][phase] != "log") out = std::max(out, run.steps[i]);
  const auto* at_end = run.history.find("global_step");  // the last steps may have no row
  return std::max(static_cast<int64_t>(out), at_end != nullptr ? at_end->integer(run.name + "/history.json") : 0);
}

// Returns the numbers of a run that do not depend on its task.
std::vector<ReportField> results_of(const RunRecord& run) {
  const Epochs epochs(run);
  const auto skipped = curve_of(run, "train", "skipped").value;
  const auto duration = [&](const char* key) {
    return epochs.items.empty() ? ReportValue(Json()) : ReportValue(epochs.sum(key), human_duration(epochs.sum(key)));
  };
  const auto memory = epochs.values("peak_memory_bytes");
  const auto rate = [&](const char* key) {
    const auto values = epochs.values(key);
    return values.empty() ? ReportValue(Json()) : number_value(upper_median(values), 4);
  };
  std::vector<ReportField> out = {
      both("model", setting(run, "model.name")),
      both("data", setting(run, "data.name")),
      both("device", setting(run, "device")),
      both("precision", setting(run, "precision")),
      both("optimizer", setting(run, "optimizer.name")),
      both("lr", "learning rate", setting(run, "optimizer.lr")),
      both("batch_size", "batch size", setting(run, "data.batch_size")),
      both("epochs", static_cast<int64_t>(epochs.items.size())),
      both("steps", steps_of(run)),
      both("skipped_steps", "skipped steps", static_cast<int64_t>(std::count(skipped.begin(), skipped.end(), 1.0))),
      both("end", end_of(run)),
      both("samples_per_second", "samples/s, median of epochs", rate("samples_per_second")),
      both("tokens_per_second", "tokens/s, median of epochs", rate("tokens_per_second")),
      both("mfu", "model FLOPs utilisation", rate("mfu")),
      both("data_wait", "waiting for data",
           epochs.sum("seconds") > 0 ? share_value(epochs.sum("data_wait") / epochs.sum("seconds")) : ReportValue(Json())),
      both("peak_memory_bytes", "peak memory",
           memory.empty() ? ReportValue(Json()) : bytes_value(*std::max_element(memory.begin(), memory.end()))),
      both("seconds", "time in training", duration("seconds")),
      both("val_seconds", "time in validation", duration("val_seconds")),
  };
  std::erase_if(out, [](const ReportField& f) { return f.value.exact.is_null(); });
  return out;
}

// Returns "3 epochs and 60 steps, 2 steps skipped; end: trainer.max_epochs reached".
std::string sentence_about(const std::vector<ReportField>& results) {
  const auto text = [&](const char* key) {
    return std::find_if(results.begin(), results.end(), [&](const auto& f) { return f.key == key; })->value.text;
  };
  return text("epochs") + " epochs and " + text("steps") + " steps, " + text("skipped_steps") + " steps skipped; end: " + text("end");
}

// Adds a sentence about each run, and a table of the results with a column for each.
void add_results(Report& out, const Runs& runs) {
  auto documents = Json::array();
  std::vector<std::vector<ReportField>> all;
  std::vector<std::string> names;
  for (const auto& run : runs) {
    all.push_back(results_of(run));
    out.say((runs.size() == 1 ? "" : run.name + ": ") + sentence_about(all.back()));
    auto document = Json::object({{"run", run.name}});
    for (const auto& field : all.back()) {
      document.push_member(field.key, field.value.exact);
      if (std::find(names.begin(), names.end(), field.name) == names.end()) names.push_back(field.name);
    }
    documents.push_back(std::move(document));
  }
  out.data({{"runs", std::move(documents)}});
  ReportTable table{.title = "Results"};
  for (const auto& name : names) {
    std::vector<ReportField> row = {shown("result", name)};
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto found = std::find_if(all[i].begin(), all[i].end(), [&](const auto& f) { return f.name == name; });
      row.push_back(shown(runs.size() == 1 ? "value" : runs[i].name, found == all[i].end() ? ReportValue(Json()) : found->value));
    }
    table.add(std::move(row));
  }
  out.table("", std::move(table));
}

// Adds the last, the lowest and the highest value of each metric over the epochs and validations. A NaN is neither lowest nor highest.
void add_metrics(Report& out, const Runs& runs) {
  ReportTable table{.title = "Metrics"};
  for (const auto& name : metrics_of(runs))
    for (const auto& run : runs)
      for (const auto& [phase, prefix] : {std::pair("epoch", "train/"), std::pair("val", "val/"), std::pair("log", "")}) {
        const auto curve = curve_of(run, phase, name);
        if (!curve.any()) continue;
        std::optional<size_t> low, high;
        for (size_t i = 0; i < curve.value.size(); ++i) {
          if (std::isnan(curve.value[i])) continue;
          if (!low || curve.value[i] < curve.value[*low]) low = i;
          if (!high || curve.value[i] > curve.value[*high]) high = i;
        }
        const auto value = [&](std::optional<size_t> i) { return i ? number_value(curve.value[*i], 5) : ReportValue(Json()); };
        const auto at = [&](std::optional<size_t> i) {
          return i ? ReportValue(static_cast<int64_t>(curve.step[*i])) : ReportValue(Json());
        };
        std::vector<ReportField> row = {both("metric", prefix + name), both("last", value(curve.value.size() - 1)),
                                        both("lowest", value(low)),    both("lowest_step", "step of lowest", at(low)),
                                        both("highest", value(high)),  both("highest_step", "step of highest", at(high))};
        if (runs.size() > 1) row.insert(row.begin() + 1, both("run", run.name));
        table.add(std::move(row));
      }
  out.table("metrics", std::move(table));
}

// Adds a plot of a column: its values in training and validation, for each run.
void add_plot(Report& out, const Runs& runs, const std::string& column, const std::string& title, bool log_y = false) {
  LinePlot plot{.title = title, .x_label = "step", .y_label = column, .log_y = log_y};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    const std::string of = runs.size() > 1 ? run.name + " " : "";
    // A run has one colour in all plots, and dashed lines for its validation.
    const auto style = [&](std::string_view phase) {
      constexpr size_t kColors = 8;
      return runs.size() > 1 ? static_cast<int64_t>(i % kColors + (phase == "val" ? kColors : 0)) : -1;
    };
    for (auto [phase, curve] : {std::pair("train", training_curve(run, column)), std::pair("val", curve_of(run, "val", column)),
                                std::pair("logged", curve_of(run, "log", column))})
      if (curve.any()) plot.series.push_back({of + phase, std::move(curve.step), std::move(curve.value), {}, style(phase)});
  }
  const bool flat = std::all_of(plot.series.begin(), plot.series.end(),
                                [&](const auto& s) { return std::all_of(s.y.begin(), s.y.end(), [&](double y) { return y == 0; }); });
  if (!plot.series.empty() && !flat) out.plot(std::move(plot));
}

void add_curves(Report& out, const Runs& runs) {
  out.heading("Curves");
  for (const auto& name : metrics_of(runs)) add_plot(out, runs, name, name == "loss" ? "Loss" : name);
  add_plot(out, runs, "lr", "Learning rate");
  add_plot(out, runs, "grad_norm", "Norm of the gradients before clipping");
  add_plot(out, runs, "loss_scale", "Loss scale", true);
  add_plot(out, runs, "samples_per_second", "Samples per second");
  add_plot(out, runs, "tokens_per_second", "Tokens per second");
  add_plot(out, runs, "mfu", "Model FLOPs utilisation");
  add_plot(out, runs, "data_wait", "Seconds of waiting for data");
}

// Adds the settings that differ from those of the first run, with the values of all runs.
void add_settings(Report& out, const Runs& runs, const std::string& what, const std::string& title,
                  const std::function<std::vector<ConfigDifference>(const RunRecord&, const RunRecord&)>& compare) {
  struct Setting {
    std::string path;
    bool numeric;
    std::vector<std::string> values;  // value of each run
  };
  std::vector<Setting> settings;
  for (size_t i = 1; i < runs.size(); ++i)
    for (const auto& d : compare(runs[0], runs[i])) {
      auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& one) { return one.path == d.path; });
      if (found == settings.end())  // the earlier runs have the same value as the first one
        found = settings.insert(found, {d.path, d.numeric, std::vector<std::string>(runs.size(), d.a)});
      found->values[i] = d.b;
    }
  out.heading(title);
  if (settings.empty()) out.say(what + ": no differences", Tone::Good);
  ReportTable table;
  for (const auto& one : settings) {
    std::vector<ReportField> row = {both("path", what, one.path)};
    for (size_t i = 0; i < runs.size(); ++i) row.push_back(both(str_cat("run_", i), runs[i].name, one.values[i]));
    row.push_back(both("numeric", "may change numbers", {one.numeric, one.numeric ? "yes" : "no", Tone::Plain}));
    table.add(std::move(row));
  }
  out.table(what + "_differences", std::move(table));
}

// Adds all settings of a single run, on the page only.
void add_all_settings(Report& out, const RunRecord& run) {
  out.heading("Configuration");
  ReportTable config;
  for (const auto& section : run.config.members())
    if (section.value.is_map())
      for (const auto& m : section.value.members())
        config.add({shown("setting", section.key + "." + m.key), shown("value", to_yaml_line(m.value))});
    else
      config.add({shown("setting", section.key), shown("value", to_yaml_line(section.value))});
  out.table("", std::move(config), ReportIn::Page);
  if (run.environment.empty()) return;
  out.heading("Environment");
  ReportTable environment;
  for (const auto& [name, value] : run.environment) environment.add({shown("fact", name), shown("value", value)});
  out.table("", std::move(environment), ReportIn::Page);
}

}  // namespace

Report report_of(const std::vector<RunRecord>& runs) {
  Report out(runs.size() == 1 ? "Run " + runs[0].name : str_cat(runs.size(), " runs"));
  add_results(out, runs);
  add_metrics(out, runs);
  for (const auto& run : runs) out.remarks(runs.size() == 1 ? "overflow" : run.name, run.overflow, Tone::Warn);
  add_curves(out, runs);
  add_monitors(out, runs);
  if (runs.size() == 1) {
    add_all_settings(out, runs[0]);
    return out;
  }
  add_settings(out, runs, "configuration", "Configuration",
               [](const auto& a, const auto& b) { return compare_configs(a.config, b.config); });
  if (std::all_of(runs.begin(), runs.end(), [](const auto& run) { return !run.environment.empty(); }))
    add_settings(out, runs, "environment", "Environment",
                 [](const auto& a, const auto& b) { return compare_environments(a.environment, b.environment); });
  else
    out.notes({"not all runs have an environment.json; environments were not compared"});
  return out;
}

}  // namespace npu_train::cli
