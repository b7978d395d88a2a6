#include "analyze_config.hpp"
#include "analyze_source.hpp"
#include "commands.hpp"

namespace npu_train::cli {

void add_analyze(CLI::App& app, Command& run) {
  auto args = std::make_shared<SourceArguments>();
  auto config = std::make_shared<AnalyzeArguments>();
  auto* sub =
      app.add_subcommand("analyze", "list the work that a move to Ascend NPUs needs, for a run (CONFIG) or a project's sources (--source)");
  auto* words =
      sub->add_option("config", config->words, "CONFIG.yaml [key=value ...]: runs one training step here and looks up its operators");
  auto* soc =
      sub->add_option("--soc", config->options.soc, "the chip (910A, 910B3, 910_9392, 310P3) or its series (910B, 910C, 950, 310P, 310B)");
  soc->capture_default_str();
  auto* torch = sub->add_option("--torch", config->options.torch, "version of torch_npu, 2.11 to 2.13")->capture_default_str();
  auto* hbm = sub->add_option("--hbm", config->hbm, "memory of the card (32GiB); the predicted memory of the training is compared with it");
  auto* trial = sub->add_option("--try", config->device,
                                "run and train the model on this device (npu, cuda:1, sim_npu) instead, and compare it with the CPU");
  auto* source = sub->add_option("--source", args->source, "folder of a Python or C++ project; lists its uses of CUDA by file and line");
  auto* rewrite =
      sub->add_option("--rewrite", args->rewrite, "write a copy with all mechanical changes applied, and a list of the remaining ones");
  auto* rows = sub->add_option("--rows", args->rows, "number of operators or places to show; 0: all");
  rows->capture_default_str();
  auto* csv = sub->add_option("--csv", args->csv, "write the places as a CSV table");
  auto* html = sub->add_option("--html", args->html, "write a self-contained HTML page");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  for (auto* other : {words, soc, torch, trial, hbm}) source->excludes(other);
  for (auto* other : {soc, torch, rows, html, hbm}) trial->excludes(other);
  for (auto* needing : {rewrite, csv}) needing->needs(source);
  sub->callback([args, config, source, &run] {
    config->rows = args->rows;
    config->html = args->html;
    config->json = args->json;
    run = [args, config, from_source = source->count() > 0](const Parts& parts) {
      if (from_source) return analyze_source(*args);
      return config->device.empty() ? analyze_config(*config, parts) : analyze_trial(*config, parts);
    };
  });
}

}  // namespace npu_train::cli
