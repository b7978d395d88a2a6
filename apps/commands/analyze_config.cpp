#include "analyze_config.hpp"

#include "../cli.hpp"
#include "commands.hpp"
#include "npu_train/analyze/try_device.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/sim_npu.hpp"
#include "npu_train/engine/analyze_run.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::cli {
namespace {

RunConfig config_of(const AnalyzeArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "analyze", "nothing to analyse; give CONFIG.yaml [key=value ...], or --source DIR");
  auto config = load_config(file, overrides, parts);
  config.output.dir = "";
  return config;
}

}  // namespace

int analyze_config(const AnalyzeArguments& args) {
  const auto parts = builtin_parts();
  const auto analysis = analyze_run(config_of(args, parts), args.options, parts);
  if (!args.html.empty()) write_file_atomic(args.html, to_html(analysis));
  print(args.json, args.json ? to_json(analysis) : Json(), args.json ? "" : to_text(analysis, args.rows));
  return analysis.verdict() == "blocked" ? static_cast<int>(ErrorKind::CheckFailed) : 0;
}

int analyze_trial(const AnalyzeArguments& args) {
  const auto parts = builtin_parts();
  auto config = config_of(args, parts);
  if (Device::parse(args.device).kind == "sim_npu") start_sim_npu(config.sim_npu);
  config.device = "cpu";
  config.precision = "32-true";
  Trainer trainer(config, parts);
  trainer.setup();
  auto& loader = *trainer.loop().parts().train_loader;
  loader.begin_epoch(0);
  const auto batch = loader.next();
  check(batch.has_value(), ErrorKind::Data, "analyze", "the data gave no batch");
  const auto report = try_device(trainer.task(), *batch, args.device);
  print(args.json, args.json ? to_json(report) : Json(), args.json ? "" : to_text(report));
  return report.passed() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace npu_train::cli
