#include "analyze_config.hpp"

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/analyze/analyze_run.hpp"
#include "npu_train/tools/memory/predict_memory.hpp"
#include "npu_train/tools/report/page_origin.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

RunConfig config_of(const AnalyzeArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "analyze", "nothing to analyse; give CONFIG.yaml [key=value ...], or --source DIR");
  return load_config(file, overrides, parts);
}

}  // namespace

int analyze_config(const AnalyzeArguments& args, const Parts& parts) {
  check_writable({args.html});
  const auto config = config_of(args, parts);
  auto options = args.options;
  if (!args.hbm.empty()) {
    options.hbm = size_argument("--hbm", args.hbm);
    auto predicted = config;
    predicted.sim_npu.hbm = "1024TiB";
    predicted.sim_npu.unsupported_ops = "ignore";
    options.predicted_peak = predict_memory(predicted, {.variants = false}, parts).peak.reserved;
    if (options.predicted_peak > options.hbm) options.fits_with = fitting_overrides(predicted, options.hbm, parts);
  }
  const auto analysis = analyze_run(config, options, parts);
  if (!args.html.empty()) write_page(args.html, to_html(analysis));
  auto document = args.json ? to_json(analysis) : Json();
  auto text = args.json ? std::string() : to_text(analysis, args.rows, terminal_columns());
  if (options.hbm > 0 && args.json) {
    document.set("hbm", options.hbm);
    document.set("predicted_peak", options.predicted_peak);
    document.set("fits_with", options.fits_with);
  }
  if (options.hbm > 0)
    text += "memory: " + human_bytes(static_cast<double>(options.predicted_peak)) + " predicted, of " +
            human_bytes(static_cast<double>(options.hbm)) + "\n";
  print(args.json, document, text);
  return analysis.verdict() == "blocked" ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

int analyze_trial(const AnalyzeArguments& args, const Parts& parts) {
  const auto report = try_run(config_of(args, parts), args.device, {}, parts);
  print(args.json, args.json ? to_json(report) : Json(), args.json ? "" : to_text(report, terminal_columns()));
  return report.passed() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace npu_train::cli
