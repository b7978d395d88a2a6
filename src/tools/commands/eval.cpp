#include <cstdio>

#include "commands.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/callbacks/progress.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct EvalArguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  bool json = false;
};

int evaluate(const EvalArguments& args, const Parts& parts) {
  const auto checkpoint = find_checkpoint(args.checkpoint);
  auto config = checkpoint_config(checkpoint, args.overrides, parts);
  config.output.dir = "";  // writes nothing
  config.trainer.overfit_batches = 0;
  config.model.options.erase("weights");
  Trainer trainer(config, parts);
  trainer.setup();
  trainer.load_state(load_checkpoint(checkpoint), {"optimizer", "scaler", "rng", "loader", "loop"});
  if (const auto write = [](const std::string& text) { std::fputs(text.c_str(), stdout), std::fflush(stdout); };
      !args.json && terminal_columns() > 0)
    trainer.add_callback(std::make_shared<Progress>(write, true, 1, terminal_columns));
  const auto metrics = trainer.validate();

  Json document = Json::object({{"checkpoint", checkpoint}});
  std::string text = "checkpoint " + checkpoint + "\n";
  for (const auto& [name, value] : metrics) {
    document.set(name, value);
    text += printed("  val/%s %.4f\n", name.c_str(), value);
  }
  print(args.json, document, text);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Command& run) {
  auto args = std::make_shared<EvalArguments>();
  auto* sub = app.add_subcommand("eval", "validate a checkpoint on its data set");
  sub->add_option("--checkpoint", args->checkpoint, "a checkpoint, its checkpoints/ folder, or a run's folder")->required();
  sub->add_option("overrides", args->overrides, "key=value ..., as in data.root=... device=cpu");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return evaluate(*args, parts); }; });
}

}  // namespace npu_train::cli
