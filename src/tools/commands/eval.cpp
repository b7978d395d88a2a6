#include <cstdio>

#include "commands.hpp"
#include "eval_samples.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/callbacks/progress.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct EvalArguments {
  std::string checkpoint, weights, split = "val", predictions, html;
  std::vector<std::string> overrides;
  bool json = false;
};

// Whether the checkpoint's averages are validated; sets `config` so that the run swaps them in.
bool takes_averages(const EvalArguments& args, const RunState& state, RunConfig& config) {
  const auto set = weight_set_argument("eval", args.weights).value_or(WeightSet::Auto);
  const bool there = state.count("ema") != 0;
  check(there || set != WeightSet::Ema, ErrorKind::Checkpoint, "eval", "the checkpoint has no averages; hint: omit --weights ema");
  const bool averages = there && set != WeightSet::Plain && (config.average.enabled || set == WeightSet::Ema);
  config.average.enabled = averages;
  return averages;
}

// Returns the number of the model's classes, which may be more than those of the data.
size_t outputs_of(const RunConfig& config, size_t named) {
  const auto* given = config.model.options.find("num_classes");
  const auto count = given != nullptr && given->is_scalar() ? whole_number(given->scalar()) : std::nullopt;
  return count && *count > 0 ? static_cast<size_t>(*count) : named;
}

struct Evaluated {
  bool averages = false;
  Scalars metrics{};
  std::shared_ptr<SampleOutcomes> outcomes{};  ///< nullptr: not requested
};

Evaluated validate(const EvalArguments& args, const std::string& checkpoint, Parts parts) {
  auto config = checkpoint_config(checkpoint, args.overrides, parts);
  config.output.dir = "";  // no output files
  config.trainer.overfit_batches = 0;
  config.model.options.erase("weights");
  for (const char* key : {"sampler", "sampler_file"}) config.data.options.erase(key);  // they choose samples of a training
  const auto state = load_checkpoint(checkpoint);
  const auto classes = class_names_of(read_checkpoint_meta(checkpoint));
  Evaluated out{.averages = takes_averages(args, state, config)};
  if (!args.predictions.empty() || !args.html.empty()) out.outcomes = collect_outcomes(config, parts, outputs_of(config, classes.size()));
  Trainer trainer(config, parts);
  trainer.use_classes(classes);
  trainer.use_split(args.split == "test" ? Split::Test : args.split == "train" ? Split::Train : Split::Val);
  trainer.setup();
  trainer.load_state(state, {"optimizer", "scaler", "rng", "loader", "loop"});
  if (const auto write = [](const std::string& text) { std::fputs(text.c_str(), stdout), std::fflush(stdout); };
      !args.json && terminal_columns() > 0)
    trainer.add_callback(std::make_shared<Progress>(write, true, 1, terminal_columns));
  out.metrics = trainer.validate();
  if (out.outcomes == nullptr) return out;
  std::erase_if(out.metrics, [](const auto& metric) { return metric.first == kOutcomesMetric; });
  out.outcomes->data = trainer.data().val;
  out.outcomes->classes = trainer.data().val->info().class_names;
  return out;
}

int evaluate(const EvalArguments& args, const Parts& parts) {
  check_writable({args.predictions, args.html});
  check(args.predictions.empty() || args.predictions != args.html, ErrorKind::Usage, "eval", "--predictions and --html are the same file, ",
        args.html);
  check(args.predictions.empty() || args.predictions.ends_with(".csv"), ErrorKind::Usage, "eval", "--predictions ", args.predictions,
        "; allowed: a name that ends in .csv");
  const auto found = choose_checkpoint(args.checkpoint);
  const auto result = validate(args, found.path, parts);
  auto document =
      Json::object({{"checkpoint", found.path}, {"why", found.why}, {"weights", result.averages ? "ema" : "plain"}, {"split", args.split}});
  auto text = checkpoint_line(found.path, found.why, result.averages);
  ReportTable table{.title = "Metrics"};
  for (const auto& [name, value] : result.metrics) {
    document.set(name, value);
    text += printed("  %s/%s %.4f\n", args.split.c_str(), name.c_str(), value);
    table.add({shown("metric", args.split + "/" + name), shown("value", number_value(value, 6))});
  }
  Report report("Evaluation", document);
  report.say("Checkpoint " + found.path + (result.averages ? ", averages" : ""), Tone::Plain, ReportIn::Page);
  report.late_text([&](size_t /*most*/, size_t /*width*/) { return text; });
  report.table("", std::move(table), ReportIn::Page);
  if (result.outcomes != nullptr) add_outcomes(report, *result.outcomes);
  if (!args.predictions.empty()) write_outcomes(args.predictions, *result.outcomes);
  show(report, args.json, args.html);
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
  sub->add_option("--predictions", args->predictions, "write a .csv file with the answer for each sample (task classifier)");
  sub->add_option("--html", args->html, "write a page: metrics, scores of each class, confusion matrix, worst samples (task classifier)");
  sub->add_option("overrides", args->overrides, "key=value ..., as in data.root=... device=cpu");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return evaluate(*args, parts); }; });
}

}  // namespace npu_train::cli
