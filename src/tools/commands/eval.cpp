#include <cstdio>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/callbacks/progress.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct EvalArguments {
  std::string checkpoint, weights, split = "val";
  std::vector<std::string> overrides;
  bool json = false;
};

// Whether the averages of the checkpoint are validated; sets `config` so that the run swaps them in.
bool takes_averages(const EvalArguments& args, const RunState& state, RunConfig& config) {
  const auto set = weight_set_argument("eval", args.weights).value_or(WeightSet::Auto);
  const bool there = state.count("ema") != 0;
  check(there || set != WeightSet::Ema, ErrorKind::Checkpoint, "eval", "the checkpoint has no averages; hint: omit --weights ema");
  const bool averages = there && set != WeightSet::Plain && (config.ema.enabled || set == WeightSet::Ema);
  config.ema.enabled = averages;
  return averages;
}

int evaluate(const EvalArguments& args, const Parts& parts) {
  const auto found = choose_checkpoint(args.checkpoint);
  auto config = checkpoint_config(found.path, args.overrides, parts);
  config.output.dir = "";  // no output files
  config.trainer.overfit_batches = 0;
  config.model.options.erase("weights");
  const auto state = load_checkpoint(found.path);
  const bool averages = takes_averages(args, state, config);
  Trainer trainer(config, parts);
  trainer.use_classes(class_names_of(read_checkpoint_meta(found.path)));
  trainer.use_split(args.split == "test" ? Split::Test : args.split == "train" ? Split::Train : Split::Val);
  trainer.setup();
  trainer.load_state(state, {"optimizer", "scaler", "rng", "loader", "loop"});
  if (const auto write = [](const std::string& text) { std::fputs(text.c_str(), stdout), std::fflush(stdout); };
      !args.json && terminal_columns() > 0)
    trainer.add_callback(std::make_shared<Progress>(write, true, 1, terminal_columns));
  const auto metrics = trainer.validate();

  auto document =
      Json::object({{"checkpoint", found.path}, {"why", found.why}, {"weights", averages ? "ema" : "plain"}, {"split", args.split}});
  auto text = checkpoint_line(found.path, found.why, averages);
  for (const auto& [name, value] : metrics) {
    document.set(name, value);
    text += printed("  %s/%s %.4f\n", args.split.c_str(), name.c_str(), value);
  }
  print(args.json, document, text);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Command& run) {
  auto args = std::make_shared<EvalArguments>();
  auto* sub = app.add_subcommand("eval", "validate a checkpoint on its data set");
  sub->add_option("--checkpoint", args->checkpoint, "a checkpoint, its checkpoints/ folder, or a run's folder")->required();
  sub->add_option("--weights", args->weights, "plain, or ema: the averages, which are the default if the run has them");
  sub->add_option("--split", args->split, "train, val or test: the part of the data, without augmentation")
      ->check(CLI::IsMember({"train", "val", "test"}))
      ->capture_default_str();
  sub->add_option("overrides", args->overrides, "key=value ..., as in data.root=... device=cpu");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return evaluate(*args, parts); }; });
}

}  // namespace npu_train::cli
