#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/bench/baseline.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/train/options.hpp"

namespace npu_train {
namespace {

History history_of(const Baseline& b, const std::string& source) {
  return {.source = source,
          .columns = {"step", "loss", "lr"},
          .step = b.steps,
          .loss = b.losses,
          .lr = b.lrs,
          .others = {},
          .skipped = {},
          .notes = {}};
}

BaselineMetric judge(const std::string& name, double now, double reference, const BaselineOptions& options) {
  BaselineMetric out{.name = name, .now = now, .reference = reference};
  const bool larger = larger_is_better(name, "auto");
  out.worse = larger ? reference - now : now - reference;
  out.allowed = larger ? options.metric_points : options.history.mean_rtol * std::abs(reference);
  out.passed = std::isfinite(out.worse) && out.worse <= out.allowed;
  return out;
}

void judge_metrics(BaselineComparison& c, const BaselineOptions& options) {
  for (const auto& [name, reference] : c.reference.val) {
    const auto now = scalar_or(c.now.val, name, std::nan(""));
    if (std::isnan(now) && std::none_of(c.now.val.begin(), c.now.val.end(), [&, key = name](const auto& v) { return v.first == key; }))
      c.notes.push_back("val/" + name + " was measured for the reference only");
    else
      c.metrics.push_back(judge(name, now, reference, options));
  }
  if (c.metrics.empty()) c.notes.push_back("no validation on both sides: accuracy is judged by the losses of the steps alone");
}

std::string speed_sentence(const BaselineComparison& c) {
  const auto range = short_number(c.speed, 3) + " times the reference's speed (" + short_number(c.speed_low, 3) + " to " +
                     short_number(c.speed_high, 3) + ")";
  if (!c.speed_judged()) return "not judged: " + c.speed_obstacle();
  const auto asked = c.least_speed == 1 ? std::string() : ", required: " + short_number(c.least_speed, 3);
  if (!c.speed_passed()) return range + asked + ": too slow";
  if (c.speed_low <= 1 && c.speed_high >= 1) return range + asked + ": no difference larger than the scatter";
  return range + asked + (c.speed > 1 ? ": faster" : ": slower");
}

bool draws_of_its_own(const Baseline& b) {
  const auto* rng = b.config.find("rng");
  return rng == nullptr || rng->scalar() != "portable";
}

std::string side(const Baseline& b) {
  return b.device + " in " + b.precision + ", " + short_number(b.samples_per_second()) + " samples/s, peak memory " +
         (b.peak_memory >= 0 ? "of the " + b.peak_memory_of + " " + human_bytes(static_cast<double>(b.peak_memory)) : "unknown");
}

}  // namespace

std::string BaselineComparison::accuracy_sentence() const {
  auto out = "losses differ by " + percentage(history.mean_relative) + " on average, by " + percentage(history.last_quarter_relative) +
             " in the last quarter";
  for (const auto& m : metrics)
    if (!m.passed) out += "; val/" + m.name + " is worse by " + short_number(m.worse, 3);
  return out;
}

std::string BaselineComparison::speed_obstacle() const {
  for (const auto* b : {&now, &reference})
    if (b->device.starts_with("sim_npu")) return b->device + " computes on the host's processor, whose speed does not represent a chip";
  const auto ours = now.step_seconds.size(), theirs = reference.step_seconds.size();
  if (std::min(ours, theirs) >= 6) return "";
  return str_cat(ours, " and ", theirs, " steps were measured after the warm-up; both sides need at least six");
}

bool BaselineComparison::accuracy_passed() const {
  return history.agrees && std::all_of(metrics.begin(), metrics.end(), [](const BaselineMetric& m) { return m.passed; });
}

void check_options(const BaselineOptions& options) {
  check(options.metric_points >= 0 && options.least_speed >= 0 && std::isfinite(options.metric_points + options.least_speed),
        ErrorKind::Usage, "baseline", "accuracy-drop is ", options.metric_points, " and least-speed ", options.least_speed,
        "; both must be numbers of at least 0");
  check(options.history.mean_rtol > 0 && std::isfinite(options.history.mean_rtol), ErrorKind::Usage, "baseline", "loss-rtol is ",
        options.history.mean_rtol, "; it must be a number above 0, such as 0.02 for 2 %");
}

void check_same_training(const Baseline& now, const Baseline& reference) {
  check(now.parameters == reference.parameters && now.effective_batch == reference.effective_batch, ErrorKind::Usage, "baseline",
        "not the same training: ", now.model, " with ", with_commas(now.parameters), " parameters and ", now.effective_batch,
        " samples per step; the reference: ", reference.model, " with ", with_commas(reference.parameters), " and ",
        reference.effective_batch, "; hint: record both with the same configuration");
}

BaselineComparison compare_baselines(Baseline now, Baseline reference, const BaselineOptions& options) {
  check_options(options);
  check_same_training(now, reference);
  BaselineComparison c{.now = std::move(now), .reference = std::move(reference), .history = {}};
  c.least_speed = options.least_speed;
  c.mean_rtol = options.history.mean_rtol;
  c.history = compare_histories(history_of(c.now, "now"), history_of(c.reference, "reference"), options.history);
  judge_metrics(c, options);
  for (auto& d : compare_configs(c.now.config, c.reference.config))
    if (d.numeric && d.path != "device" && d.path != "precision") c.config.push_back(std::move(d));
  if (!c.config.empty())
    c.notes.push_back("settings that may change numbers differ: " + c.config.front().path + " is " + c.config.front().a + " now and " +
                      c.config.front().b + " in the reference" +
                      (c.config.size() > 1 ? ", and " + std::to_string(c.config.size() - 1) + " more" : ""));
  if (!c.history.complete) c.notes.push_back("the runs have different lengths; only common steps were compared");
  if (!c.history.agrees && !c.now.steps.empty() && c.history.first_unequal == c.now.steps.front() && draws_of_its_own(c.now) &&
      c.now.device.substr(0, 3) != c.reference.device.substr(0, 3)) {
    c.advice = "if the model uses dropout, record both with rng=portable: the native random numbers of the devices differ";
    c.notes.push_back(c.advice);
  }
  c.speed = c.now.samples_per_second() / c.reference.samples_per_second();
  if (c.now.peak_memory_of != c.reference.peak_memory_of)
    c.notes.push_back("memory is not compared: it is that of the " + c.now.peak_memory_of + " here, and that of the " +
                      c.reference.peak_memory_of + " on the other side");
  else if (c.now.peak_memory >= 0 && c.reference.peak_memory > 0)
    c.memory = static_cast<double>(c.now.peak_memory) / static_cast<double>(c.reference.peak_memory);
  const auto [now_low, now_high] = c.now.step_seconds.median_interval();
  const auto [reference_low, reference_high] = c.reference.step_seconds.median_interval();
  c.speed_low = reference_low / now_high;
  c.speed_high = reference_high / now_low;
  return c;
}

Report report_of(const BaselineComparison& c) {
  Report out(c.now.model + ": " + c.now.device + " against " + c.reference.device,
             Json::object({{"accuracy_passed", c.accuracy_passed()},
                           {"speed_judged", c.speed_judged()},
                           {"speed_passed", c.speed_passed()},
                           {"speed_obstacle", c.speed_obstacle()},
                           {"speed", c.speed},
                           {"speed_low", c.speed_low},
                           {"speed_high", c.speed_high},
                           {"memory", c.memory ? Json(*c.memory) : Json()},
                           {"least_speed", c.least_speed},
                           {"losses_agree", c.history.agrees},
                           {"mean_relative_loss", c.history.mean_relative}}));
  const bool accurate = c.accuracy_passed(), wrong = !accurate || (c.speed_judged() && !c.speed_passed());
  out.say("accuracy: " + std::string(accurate ? "passed" : "FAILED"), Tone::Plain, ReportIn::Text);
  out.say("speed: " + speed_sentence(c), Tone::Plain, ReportIn::Text);
  out.say(std::string(accurate ? "The training agrees with the reference" : "The training does not agree with the reference") +
              "; its speed is " + speed_sentence(c),
          wrong              ? Tone::Bad
          : c.speed_judged() ? Tone::Good
                             : Tone::Warn,
          ReportIn::Page);
  out.say("Accuracy: " + c.accuracy_sentence(), Tone::Plain, ReportIn::Page);
  out.facts({shown("now", side(c.now)), shown("reference", side(c.reference))});
  ReportTable table;
  for (const auto& [name, mean] : {std::pair{"mean difference of losses", c.history.mean_relative},
                                   std::pair{"mean difference in the last quarter", c.history.last_quarter_relative}}) {
    const bool passed = mean <= c.mean_rtol;
    table.add({shown("accuracy", name), shown("now", ""), shown("reference", ""), shown("worse by", share_value(mean)),
               shown("allowed", share_value(c.mean_rtol)),
               shown("verdict", toned(passed ? "passed" : "failed", passed ? Tone::Good : Tone::Bad))});
  }
  auto metrics = Json::array();
  for (const auto& m : c.metrics) {
    table.add({shown("accuracy", "val/" + m.name), shown("now", m.now), shown("reference", m.reference),
               shown("worse by", number_value(m.worse, 3)), shown("allowed", number_value(m.allowed, 3)),
               shown("verdict", toned(m.passed ? "passed" : "failed", m.passed ? Tone::Good : Tone::Bad))});
    metrics.push_back(Json::object(
        {{"name", m.name}, {"now", m.now}, {"reference", m.reference}, {"worse", m.worse}, {"allowed", m.allowed}, {"passed", m.passed}}));
  }
  out.table("", table);
  out.remarks("losses", c.history.sentences);
  const auto curve = [](const std::string& name, const Baseline& b) {
    return LinePlot::Series{.name = name, .x = {b.steps.begin(), b.steps.end()}, .y = b.losses};
  };
  out.plot(
      LinePlot{.title = "Loss", .x_label = "step", .y_label = "loss", .series = {curve("now", c.now), curve("reference", c.reference)}});
  out.data({{"metrics", std::move(metrics)}});
  out.notes(c.notes, Tone::Warn);
  if (c.memory) out.say("memory: " + short_number(*c.memory, 3) + " times the reference's peak");
  out.data({{"now", to_json(c.now)}, {"reference", to_json(c.reference)}});
  return out;
}

}  // namespace npu_train
