#include "npu_train/tools/bench/baseline.hpp"

#include <filesystem>
#include <optional>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct BaselineArguments {
  std::vector<std::string> words;
  std::string out, against, html;
  BaselineOptions options;
  bool json = false;
};

int baseline(const BaselineArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "baseline", "no configuration; give CONFIG.yaml [key=value ...]");
  const auto config = load_config(file, overrides, parts);
  check(!args.out.empty() || !args.against.empty() || args.json || !config.output.dir.empty(), ErrorKind::Usage, "baseline",
        "nothing would be written: output.dir is empty; hint: --out FILE");
  check_writable({args.out, args.html});
  check_options(args.options);  // before hours of training, like all checks that need no results
  std::optional<Baseline> reference;
  if (!args.against.empty()) reference = read_baseline(args.against);
  const auto now = record_baseline(config, parts, reference ? &*reference : nullptr);
  const auto out = !args.out.empty() || now.run_dir.empty() ? args.out : (std::filesystem::path(now.run_dir) / "baseline.json").string();
  if (!out.empty()) save_json(out, to_json(now));
  const auto show_all = [&](Report report) {
    if (!out.empty()) report.say("baseline written: " + out, Tone::Plain, ReportIn::Text);
    show(report, args.json, args.html);
  };
  if (!reference) {
    show_all(report_of(now));
    return 0;
  }
  const auto comparison = compare_baselines(now, *reference, args.options);
  show_all(report_of(comparison));
  return comparison.accuracy_passed() && comparison.speed_passed() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_baseline(CLI::App& app, Command& run) {
  auto args = std::make_shared<BaselineArguments>();
  auto* sub = app.add_subcommand("baseline",
                                 "train, and record losses, accuracy, speed and memory, for comparison with the same training elsewhere");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_option("--out", args->out, "output file; default: baseline.json in the run's folder");
  auto* against = sub->add_option("--against", args->against, "baseline of another device, with which accuracy and speed are compared");
  sub->add_option("--accuracy-drop", args->options.metric_points, "points by which a validation metric may be lower")
      ->capture_default_str()
      ->needs(against);
  sub->add_option("--loss-rtol", args->options.history.mean_rtol, "largest accepted mean relative difference of the losses")
      ->capture_default_str()
      ->needs(against);
  sub->add_option("--least-speed", args->options.least_speed, "required speed, as a multiple of the reference's samples per second")
      ->capture_default_str()
      ->needs(against);
  sub->add_option("--html", args->html, "write the comparison as a self-contained HTML page")->needs(against);
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return baseline(*args, parts); }; });
}

}  // namespace npu_train::cli
