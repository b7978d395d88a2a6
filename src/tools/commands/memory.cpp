#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct MemoryArguments {
  std::vector<std::string> words;
  std::string hbm, html, strategy;
  std::vector<int64_t> check;
  int nproc = 1;
  bool quick = false, json = false;
};

// Compares the prediction with the memory of two real steps.
int memory_check(const RunConfig& config, const MemoryArguments& args, const Parts& parts) {
  ReportTable table;
  for (const auto& row : check_memory(config, args.check, parts))
    table.add({both("batch_size", "batch", row.batch), both("predicted", bytes_value(row.predicted)),
               both("measured", bytes_value(row.measured)), both("error", share_value(row.error()))});
  Report out("Predicted and measured memory", table.json());
  out.table("", std::move(table));
  show(out, args.json);
  return 0;
}

int memory(const MemoryArguments& args, const Parts& parts) {
  check_writable({args.html});
  MemoryPredictionOptions options;
  if (!args.hbm.empty()) options.hbm = size_argument("--hbm", args.hbm);
  options.variants = !args.quick;
  options.ranks = args.nproc;
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "memory",
        "no configuration is given; hint: npu_tool memory CONFIG.yaml --hbm 32GiB [key=value ...]");
  auto config = npu_train::detail::without_limits(load_config(file, overrides, parts));
  if (!args.strategy.empty()) config.trainer.strategy = args.strategy;
  const ScopedLogSink warnings(make_standard_sink(LogLevel::Warning));
  if (!args.check.empty()) return memory_check(config, args, parts);
  const auto prediction = predict_memory(config, options, parts);
  show(report_of(prediction), args.json, args.html);
  return prediction.fits() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_memory(CLI::App& app, Command& run) {
  auto args = std::make_shared<MemoryArguments>();
  auto* sub =
      app.add_subcommand("memory", "predict the memory of a training from steps with 2 and 3 samples, and the largest batch that fits");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  auto* hbm = sub->add_option("--hbm", args->hbm,
                              "memory of the card (32GiB, 32GB, 512MiB): the largest batch that fits is reported; exit code 7 if "
                              "the configuration's batch does not fit");
  auto* quick = sub->add_flag("--quick", args->quick,
                              "predict only this configuration, not the other precisions or strategies, with and without checkpointing");
  auto* nproc = sub->add_option("--nproc", args->nproc,
                                "processes that train together, each on a device of its own: the memory is that of one of them, for "
                                "trainer.strategy and the others; they need not exist")
                    ->check(CLI::Range(1, 65536));
  sub->add_option("--strategy", args->strategy, "with --nproc: as trainer.strategy=S")
      ->check(CLI::IsMember({"ddp", "zero1", "zero2", "zero3"}))
      ->needs(nproc);
  auto* check = sub->add_option("--check", args->check,
                                "train two steps with each of these batch sizes (4,8,13) on the device, and compare with the prediction")
                    ->delimiter(',')
                    ->allow_extra_args(false)
                    ->check(above_zero());
  auto* html = sub->add_option("--html", args->html, "write a self-contained HTML page");
  for (auto* of_the_prediction : {hbm, quick, html, nproc}) check->excludes(of_the_prediction);
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return memory(*args, parts); }; });
}

}  // namespace npu_train::cli
