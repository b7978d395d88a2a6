#include "model_arguments.hpp"

#include <filesystem>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/weights.hpp"
#include "tools/commands/console/number_checks.hpp"

namespace npu_train::cli {

bool is_model_key(const std::string& word) { return word.starts_with("model.") && word.find('=') != std::string::npos; }

PartConfig ModelArguments::part(const Parts& parts) const {
  if (!named()) with_weights_options({}, parts, weights);  // throws an error with the reason, unless a config.json names the network
  ConfigNode node{{"model", named() ? ConfigNode{{"name", name}} : ConfigNode{{"weights", weights}}}};
  for (const auto& key : keys) {
    check(is_model_key(key), ErrorKind::Usage, "command line", "'", key, "' is not understood; allowed: model.KEY=VALUE");
    apply_override(node, key);
  }
  if (num_classes > 0) node.set("model.num_classes", ConfigNode(num_classes));
  return bind_config(node, parts).model;
}

std::optional<WeightSet> weight_set_argument(const char* command, const std::string& word) {
  if (word.empty()) return std::nullopt;
  check(word == "plain" || word == "ema", ErrorKind::Usage, command, "--weights ", word,
        " of a checkpoint; allowed: plain, ema; hint: "
        "weights of a file need --model NAME");
  return weight_set_of(word);
}

// Treats a name as the path of a folder of Hugging Face, unless a model has that name.
ModelArguments ModelArguments::with_folder(const char* command, const Parts& parts) const {
  std::error_code error;
  if (!named() || parts.models.contains(name) || !std::filesystem::is_directory(name, error)) return *this;
  check(weights.empty(), ErrorKind::Usage, command, "--model ", name, " is a folder, which has its own weights; omit --weights");
  auto out = *this;
  out.weights = std::exchange(out.name, "");
  return out;
}

ModelSource ModelArguments::source(const char* command, bool needs_weights, const Parts& parts) const {
  if (const auto of_folder = with_folder(command, parts); of_folder.name != name) return of_folder.source(command, needs_weights, parts);
  check(checkpoint.empty() || !named(), ErrorKind::Usage, command, "--checkpoint has its own model; omit --model");
  check(checkpoint.empty() || num_classes == 0, ErrorKind::Usage, command,
        "--checkpoint has its own classes; omit --num-classes; hint: --model NAME for a model with others");
  if (!checkpoint.empty()) return {.checkpoint = checkpoint, .overrides = keys, .set = weight_set_argument(command, weights)};
  check(!weights.empty() || (named() && !needs_weights), ErrorKind::Usage, command, "give --checkpoint DIR, or --model NAME ",
        needs_weights ? "with" : "and, unless its weights may be random,", " --weights FILE, or --weights FOLDER of Hugging Face, whose ",
        "config.json names the network; model.KEY=VALUE sets its options");
  return {.model = part(parts), .weights = weights};
}

void add_model_options(CLI::App& sub, ModelArguments& args, const std::string& model_help) {
  sub.add_option("--model", args.name, model_help + "; model.KEY=VALUE changes its options, as in model.image_size=384");
  sub.add_option("--num-classes", args.num_classes, "number of classes of that model, as model.num_classes=N")->check(above_zero());
}

void add_source_options(CLI::App& sub, ModelArguments& args) {
  sub.add_option("--checkpoint", args.checkpoint, "a checkpoint, its checkpoints/ folder, or a run's folder");
  add_model_options(sub, args, "in place of --checkpoint: name of a model, or a folder of Hugging Face");
  sub.add_option("--weights", args.weights,
                 "a file or folder, of any kind that npu_tool weights reads, for --model NAME or the network that the folder's config.json "
                 "describes; with --checkpoint: plain, or ema (the averages, which are the default if the run has them)");
}

}  // namespace npu_train::cli
