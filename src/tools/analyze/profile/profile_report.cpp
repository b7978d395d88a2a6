#include <algorithm>
#include <cmath>
#include <map>

#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/analyze/profiler.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {
namespace {

constexpr size_t kShown = 15;  // number of operators and layers in the text

/// The total of an operator or layer over the traced windows.
struct TracedTime {
  std::string phase, name;
  int64_t calls = 0;
  double seconds = 0;
  int64_t grown = 0;  // bytes by which tensors grew during its calls
};

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }
/// Rounds values below a hundredth to 0, since they do not matter here.
double rounded(double value) { return std::abs(value) < 0.01 ? 0 : value; }
std::string short_text(double value) { return short_number(rounded(value), 3); }
std::string percent(double share) { return short_text(100 * share) + " %"; }
std::string milliseconds(double seconds) { return short_text(1e3 * seconds) + " ms"; }

double share_of(const Profile& profile, Phase phase) {
  for (const auto& p : profile.phases)
    if (p.phase == phase) return share(p.seconds, profile.seconds);
  return 0;
}

std::vector<TracedTime> traced_times(const Profile& profile, bool by_layer) {
  std::map<std::pair<std::string, std::string>, TracedTime> sums;
  int64_t window = -1, bytes = -1;
  for (const auto& event : profile.events) {
    if (event.window != window) bytes = profile.bytes_above_start ? 0 : -1;
    window = event.window;
    const auto before = bytes;
    bytes = event.bytes;
    if (event.kind != TraceEvent::Kind::Operator || (by_layer && event.layer.empty())) continue;
    const auto& name = by_layer ? event.layer : event.name;
    auto& sum = sums[{phase_name(event.phase), name}];
    sum.phase = phase_name(event.phase);
    sum.name = name;
    ++sum.calls;
    sum.seconds += event.seconds;
    if (before >= 0 && bytes >= 0) sum.grown += bytes - before;
  }
  std::vector<TracedTime> out;
  for (auto& [key, sum] : sums) out.push_back(std::move(sum));
  std::stable_sort(out.begin(), out.end(), [](const TracedTime& a, const TracedTime& b) { return a.seconds > b.seconds; });
  return out;
}

std::string headline(const Profile& profile) {
  const auto n = std::max<int64_t>(profile.windows, 1);
  std::string out = std::to_string(profile.windows) + (profile.windows == 1 ? " window" : " windows") + " on " + profile.device + " in " +
                    short_number(profile.seconds, 3) + " s, " + milliseconds(profile.seconds / static_cast<double>(n)) + " each";
  if (profile.first) out += "; the first, which is not counted, took " + short_number(*profile.first, 3) + " s";
  return out;
}

std::vector<std::string> notes(const Profile& profile) {
  std::vector<std::string> out;
  if (profile.synchronised) out.push_back("The profiler waits for the device after each phase; without it, phases overlap.");
  if (profile.events.empty()) return out;
  if (!profile.first)
    out.push_back("There was only one window: operators and layers are from it, including the extra time of the first window of a run.");
  else
    out.push_back("Operators and layers are from " + std::to_string(profile.events.back().window - profile.events.front().window + 1) +
                  " traced window(s), which are slower and are excluded from the phases if there are other windows.");
  return out;
}

ReportTable times_table(const Profile& profile, bool by_layer) {
  const char* what = by_layer ? "layer" : "operator";
  ReportTable out{.title = std::string("Time by ") + what + " in the traced windows", .text_rows = kShown, .order = "longest first"};
  for (const auto& t : traced_times(profile, by_layer))
    out.add({both("name", what, t.name), both("phase", t.phase), both("calls", t.calls),
             both("seconds", "time", {t.seconds, milliseconds(t.seconds)}), both("grown_bytes", "memory kept", bytes_value(t.grown))});
  return out;
}

ReportTable phases_table(const Profile& profile) {
  ReportTable out{.title = "Phases"};
  const auto windows = static_cast<double>(std::max<int64_t>(profile.windows, 1));
  const auto time = [](double seconds) { return ReportValue(seconds, seconds < 1 ? milliseconds(seconds) : short_text(seconds) + " s"); };
  const auto part = [&](double seconds) { return ReportValue(share(seconds, profile.seconds), percent(share(seconds, profile.seconds))); };
  const auto each = [&](double seconds) { return ReportValue(seconds / windows, milliseconds(seconds / windows)); };
  for (const auto& p : profile.phases)
    out.add({both("phase", phase_name(p.phase)), both("calls", p.calls), both("seconds", "time", time(p.seconds)),
             both("share", part(p.seconds)), shown("per window", each(p.seconds))});
  const auto between = profile.between();
  out.add({shown("phase", "between"), shown("time", time(between)), shown("share", part(between)), shown("per window", each(between))});
  return out;
}

/// Plots the memory of tensors during the last traced window, after each operator.
LinePlot memory_plot(const Profile& profile) {
  LinePlot plot{
      .title = profile.bytes_above_start ? "Memory of tensors during a window, relative to its start" : "Memory of the device in a window",
      .x_label = "time in the window, ms",
      .y_label = "MiB"};
  LinePlot::Series series{.name = "held"};
  double begin = -1;
  const auto window = profile.events.back().window;
  for (const auto& event : profile.events) {
    if (event.window != window || event.bytes < 0) continue;
    if (begin < 0) begin = event.begin;
    const auto end = 1e3 * (event.begin + event.seconds - begin);
    if (event.kind == TraceEvent::Kind::Phase) {
      if (event.seconds > 0 && (event.phase == Phase::Forward || event.phase == Phase::Backward || event.phase == Phase::Optimizer))
        plot.marks.push_back({1e3 * (event.begin - begin), event.name});
    } else {
      series.x.push_back(end);
      series.y.push_back(static_cast<double>(event.bytes) / (1 << 20));
      series.labels.push_back(event.layer.empty() || event.layer == event.name ? event.name : event.layer + " (" + event.name + ")");
    }
  }
  plot.series.push_back(std::move(series));
  return plot;
}

}  // namespace

double Profile::between() const {
  double inside = 0;
  for (const auto& p : phases) inside += p.seconds;
  return std::max(0.0, seconds - inside);
}

std::vector<std::string> advice(const Profile& profile) {
  std::vector<std::string> out;
  const auto say = [&](Phase phase, double above, const std::string& text) {
    const auto here = share_of(profile, phase);
    if (here > above) out.push_back(percent(here) + " of the time is " + text);
  };
  say(Phase::DataWait, 0.1, "waiting for data: raise data.num_workers, use cheaper transforms or a faster disk, or data.augment_on=device");
  say(Phase::Transfer, 0.05,
      "copying batches to the device: data.augment_on=device transfers bytes, a quarter of the size; or use larger batches");
  say(Phase::Optimizer, 0.25, "the optimizer: use larger batches, or more of them per step with trainer.accumulate_grad_batches");
  say(Phase::Clip, 0.05, "clipping gradients: remove trainer.gradient_clip_val if gradients stay small");
  say(Phase::Callbacks, 0.05, "callbacks: raise trainer.log_every_n_steps, or move work of your own callbacks to another thread");
  say(Phase::Validation, 0.3, "validation: raise trainer.check_val_every_n_epoch, or limit it with trainer.limit_val_batches");
  say(Phase::Checkpoint, 0.1, "writing checkpoints: raise checkpoint.every_n_epochs or checkpoint.every_n_train_steps");
  if (const auto between = share(profile.between(), profile.seconds); between > 0.1)
    out.push_back(percent(between) +
                  " of the time is outside all phases: reading losses, averaging weights, or your own code around steps");
  return out;
}

Report report_of(const Profile& profile) {
  Report out("Time of the training", Json::object({{"device", profile.device},
                                                   {"windows", profile.windows},
                                                   {"seconds", profile.seconds},
                                                   {"first_window_seconds", profile.first ? Json(*profile.first) : Json()},
                                                   {"synchronised", profile.synchronised},
                                                   {"between_seconds", profile.between()},
                                                   {"advice", detail::json_list(advice(profile))}}));
  out.say(headline(profile));
  for (const auto& note : notes(profile)) out.say(note);
  out.remarks("advice", advice(profile), Tone::Warn);
  out.table("phases", phases_table(profile));
  if (profile.events.empty()) return out;
  out.plot(memory_plot(profile));
  out.table("operators", times_table(profile, false));
  out.table("layers", times_table(profile, true));
  return out;
}

}  // namespace npu_train
