#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/operator_support.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/analyze/analysis.hpp"
#include "npu_train/tools/analyze/analyze_run.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/tools/scan/rewrite.hpp"
#include "npu_train/tools/scan/source_scan.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct AnalyzeArguments {
  std::vector<std::string> words;  // CONFIG key=value ...
  AnalysisOptions options;
  std::string device, html, hbm, unsupported;
  size_t rows = 30;
  bool json = false;
};

RunConfig config_of(const AnalyzeArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "analyze", "nothing to analyse; give CONFIG.yaml [key=value ...], or --source DIR");
  return load_config(file, overrides, parts);
}

// Returns the strategy with which the NPUs of one server can train the configuration; "" if none suffices, or if it cannot be sharded.
std::string strategy_that_fits(const RunConfig& config, int64_t hbm, bool overrides, const Parts& parts) {
  constexpr int kServer = 8;  // NPUs of an Atlas 800 of each generation except A3, which has 16
  const ScopedLogSink warnings(make_standard_sink(LogLevel::Warning));
  try {
    return fitting_strategy(config, hbm, kServer, overrides, parts);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Usage) throw;
    return "";
  }
}

// Returns the exit status: 0, or 7 if a finding blocks the migration.
int analyze_config(const AnalyzeArguments& args, const Parts& parts) {
  check_writable({args.html, args.unsupported});
  const auto config = config_of(args, parts);
  auto options = args.options;
  options.hbm = args.hbm.empty() ? AscendOperators(options.soc, options.torch).memory() : size_argument("--hbm", args.hbm);
  if (options.hbm > 0) {
    const auto predicted = npu_train::detail::without_limits(config);
    options.predicted_peak = predict_memory(predicted, {.variants = false}, parts).peak.reserved;
    if (options.predicted_peak > options.hbm) {
      options.fits_with = fitting_overrides(predicted, options.hbm, parts);
      options.sharded_with = strategy_that_fits(predicted, options.hbm, options.fits_with.empty(), parts);
    }
  }
  const auto analysis = analyze_run(config, options, parts);
  auto report = report_of(analysis);
  if (options.hbm > 0) {
    report.data({{"hbm", options.hbm},
                 {"predicted_peak", options.predicted_peak},
                 {"fits_with", options.fits_with},
                 {"sharded_with", options.sharded_with}});
    report.say("memory: " + human_bytes(static_cast<double>(options.predicted_peak)) + " predicted, of " +
               human_bytes(static_cast<double>(options.hbm)));
  }
  if (!args.unsupported.empty()) write_file_atomic(args.unsupported, unsupported_csv(analysis));
  show(report, args.json, args.html, args.rows);
  return analysis.verdict() == "blocked" ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

// Like analyze_config(), for `--try DEVICE`.
int analyze_trial(const AnalyzeArguments& args, const Parts& parts) {
  const auto report = try_run(config_of(args, parts), args.device, {}, parts);
  show(report_of(report), args.json);
  return report.passed() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

struct SourceArguments {
  std::string source, rewrite, html, csv, unsupported;
  size_t rows = 50;
  bool json = false, distributed = false;
};

// Prints the scan and writes the requested copy and reports. Returns 0, or 7 if a finding blocks the migration.
int analyze_source(const SourceArguments& args) {
  check_writable({args.csv, args.html, args.unsupported});
  const auto scan = scan_source(args.source);
  std::optional<Rewrite> rewrite;
  if (!args.rewrite.empty()) rewrite = rewrite_source(args.source, args.rewrite, {.distributed = args.distributed});
  if (!args.csv.empty()) write_file_atomic(args.csv, to_csv(scan));
  if (!args.unsupported.empty()) write_file_atomic(args.unsupported, unsupported_csv(scan));
  auto report = report_of(scan);
  if (rewrite) report.add("rewrite", report_of(*rewrite));
  show(report, args.json, args.html, args.rows);
  return scan.verdict == Feasibility::Blocked ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

}  // namespace

void add_analyze(CLI::App& app, Command& run) {
  auto args = std::make_shared<SourceArguments>();
  auto config = std::make_shared<AnalyzeArguments>();
  auto* sub =
      app.add_subcommand("analyze", "list the work that a move to Ascend NPUs needs, for a run (CONFIG) or a project's sources (--source)");
  auto* words =
      sub->add_option("config", config->words, "CONFIG.yaml [key=value ...]: runs one training step here and looks up its operators");
  auto* soc =
      sub->add_option("--soc", config->options.soc,
                      "the chip (910A, 910B3, 910_9392, 310P3), its series (910B, 910C, 950, 310P, 310B) or a card ('Atlas 300I Pro')");
  soc->capture_default_str();
  auto* torch = sub->add_option("--torch", config->options.torch, "version of torch_npu, 2.11 to 2.13")->capture_default_str();
  auto* hbm = sub->add_option(
      "--hbm", config->hbm,
      "memory of an NPU (32GiB; default: that of the card in --soc); the predicted memory of the training is compared with it");
  auto* trial = sub->add_option("--try", config->device,
                                "run and train the model on this device (npu, cuda:1, sim_npu) instead, and compare it with the CPU");
  auto* source = sub->add_option("--source", args->source, "folder of a Python or C++ project; lists its uses of CUDA by file and line");
  auto* rewrite =
      sub->add_option("--rewrite", args->rewrite, "write a copy with all mechanical changes applied, and a list of the remaining ones");
  auto* distributed =
      sub->add_flag("--distributed", args->distributed,
                    "with --rewrite: replace torch.nn.DataParallel by one process for each NPU, with a script that starts them");
  auto* rows = sub->add_option("--rows", args->rows, "number of operators or places to show; 0: all");
  rows->capture_default_str();
  auto* csv = sub->add_option("--csv", args->csv, "write the places as a CSV table");
  auto* unsupported = sub->add_option("--unsupported", args->unsupported,
                                      "write the operators that the chip does not support as a CSV table (unsupported_operators.csv)");
  auto* html = sub->add_option("--html", args->html, "write a self-contained HTML page");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  for (auto* other : {words, soc, torch, trial, hbm}) source->excludes(other);
  for (auto* other : {soc, torch, rows, html, hbm, unsupported}) trial->excludes(other);
  for (auto* needing : {rewrite, csv}) needing->needs(source);
  distributed->needs(rewrite);
  sub->callback([args, config, source, &run] {
    config->rows = args->rows;
    config->html = args->html;
    config->unsupported = args->unsupported;
    config->json = args->json;
    run = [args, config, from_source = source->count() > 0](const Parts& parts) {
      if (from_source) return analyze_source(*args);
      return config->device.empty() ? analyze_config(*config, parts) : analyze_trial(*config, parts);
    };
  });
}

}  // namespace npu_train::cli
