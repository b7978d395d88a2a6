#include <algorithm>
#include <cmath>
#include <limits>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

constexpr const char *kFindLr = "find-lr", *kRising = "find_lr";
// The rule of Lightning's lr_find: the loss is smoothed, the test ends when the loss is a multiple of the least one, and the suggestion is
// where the loss falls most steeply over the logarithm of the rate, without the first and the last points.
constexpr double kSmoothing = 0.98, kStopAt = 4;
constexpr size_t kSkipFirst = 10, kSkipLast = 1;

struct FindLrArguments {
  std::vector<std::string> words;
  double min_lr = 1e-8, max_lr = 1;
  int64_t steps = 100;
  bool json = false;
};

struct Point {
  double lr, loss, smoothed;
};

// Collects the losses. Stops the run when the smoothed loss exceeds kStopAt times the least one.
class Curve final : public Callback {
 public:
  void on_step_end(TrainLoop& loop, const StepReport& report) override {
    const double loss = scalar_or(report.metrics, "loss", std::nan(""));
    if (!report.taken || stopped_ || !std::isfinite(loss)) return;
    average_ = kSmoothing * average_ + (1 - kSmoothing) * loss;
    const double smoothed = average_ / (1 - std::pow(kSmoothing, static_cast<double>(points.size() + 1)));
    points.push_back({report.lr, loss, smoothed});
    least_ = std::min(least_, smoothed);
    stopped_ = points.size() > 1 && smoothed > kStopAt * least_;
    if (stopped_) loop.request_stop();
  }

  std::vector<Point> points;

 private:
  double average_ = 0, least_ = std::numeric_limits<double>::infinity();
  bool stopped_ = false;
};

std::optional<double> suggestion(const std::vector<Point>& points) {
  if (points.size() < kSkipFirst + kSkipLast + 2) return std::nullopt;
  const size_t begin = kSkipFirst, end = points.size() - kSkipLast;
  const auto slope = [&](size_t i) {  // differences, computed as by numpy.gradient
    const size_t before = i > begin ? i - 1 : i, after = i + 1 < end ? i + 1 : i;
    return (points[after].smoothed - points[before].smoothed) / static_cast<double>(after - before);
  };
  size_t steepest = begin;
  for (size_t i = begin; i < end; ++i)
    if (slope(i) < slope(steepest)) steepest = i;
  return slope(steepest) < 0 ? std::optional(points[steepest].lr) : std::nullopt;
}

// Returns a line with a bar for about every twentieth point.
std::string text_of(const std::vector<Point>& points) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const auto& p : points) least = std::min(least, p.smoothed), most = std::max(most, p.smoothed);
  std::string out = "      lr      loss  (smoothed)\n";
  const size_t stride = std::max<size_t>(points.size() / 20, 1);
  for (size_t i = 0; i < points.size(); i += stride) {
    const double height = most > least ? (points[i].smoothed - least) / (most - least) : 0;
    out += printed("%8.2e  %8.4f  ", points[i].lr, points[i].smoothed) + std::string(static_cast<size_t>(1 + 40 * height), '#') + "\n";
  }
  return out;
}

// Runs the configured training with a rate that rises exponentially over the steps, in place of its schedule.
std::vector<Point> measure(const FindLrArguments& args, const Parts& given) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, kFindLr, "no configuration; give CONFIG.yaml [key=value ...]");
  check(args.min_lr > 0 && args.min_lr < args.max_lr && std::isfinite(args.max_lr), ErrorKind::Usage, kFindLr, "--min-lr is ", args.min_lr,
        " and --max-lr ", args.max_lr, "; both must be more than 0, and the second one larger");
  auto config = npu_train::detail::without_side_effects(load_config(file, overrides, given));
  auto parts = given;
  parts.schedules.add<NoOptions>(kRising, "a rate that rises exponentially", [&args](const NoOptions&, const ScheduleContext& context) {
    check(context.base_lr > 0, ErrorKind::Usage, kFindLr, "optimizer.lr is ", context.base_lr, "; it must be more than 0");
    return std::make_unique<LrSchedule>(
        [first = args.min_lr / context.base_lr, growth = args.max_lr / args.min_lr, last = static_cast<double>(args.steps - 1)](double t) {
          return first * std::pow(growth, t / last);
        },
        /*by_epoch=*/false);
  });
  config.lr_scheduler = {.name = kRising};
  config.trainer.max_steps = args.steps;
  config.trainer.max_epochs = -1;
  config.trainer.on_divergence = "stop";
  config.checkpoint = {};
  Trainer trainer(config, parts);
  const auto curve = std::make_shared<Curve>();
  trainer.add_callback(curve);
  try {
    trainer.fit();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Diverged || curve->points.empty()) throw;  // the loss has diverged, which ends the curve
  }
  return curve->points;
}

int find_lr(const FindLrArguments& args, const Parts& parts) {
  const auto points = measure(args, parts);
  const auto lr = suggestion(points);
  Json curve = Json::array();
  for (const auto& p : points) curve.push_back(Json::object({{"lr", p.lr}, {"loss", p.loss}, {"smoothed", p.smoothed}}));
  const auto least = std::min_element(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.smoothed < b.smoothed; });
  check(least != points.end(), ErrorKind::Diverged, kFindLr, "no step was taken with a finite loss; hint: a smaller --min-lr");
  auto document = Json::object({{"curve", curve}, {"least_loss_at", least->lr}});
  if (lr) document.set("suggestion", *lr);
  print(args.json, document,
        text_of(points) +
            (lr ? printed("suggestion: optimizer.lr=%.2g, where the loss falls most steeply; it is least at %.2g\n", *lr, least->lr)
                : "no suggestion, since the loss does not fall; hint: other --min-lr and --max-lr, or more --steps\n"));
  return lr ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_find_lr(CLI::App& app, Command& run) {
  auto args = std::make_shared<FindLrArguments>();
  auto* sub = app.add_subcommand("find-lr", "try rising learning rates, and suggest one (as Lightning's lr_find does)");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_option("--min-lr", args->min_lr, "the first rate")->capture_default_str();
  sub->add_option("--max-lr", args->max_lr, "the last rate")->capture_default_str();
  sub->add_option("--steps", args->steps, "optimizer steps")->check(CLI::Range(int64_t{20}, int64_t{100000}))->capture_default_str();
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return find_lr(*args, parts); }; });
}

}  // namespace npu_train::cli
