#include <ATen/ops/cat.h>

#include <algorithm>
#include <cstdio>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/io/npy.hpp"

namespace npu_train::cli {
namespace {

struct PredictArguments {
  std::string checkpoint, weights, logits, device = "auto";
  ModelArguments model;
  int64_t top = 5;
  std::vector<std::string> pictures;
  bool json = false;
};

// Moves model.KEY=VALUE from the images to the model.
void take_model_keys(PredictArguments& args) {
  auto& words = args.pictures;
  const auto keys = std::stable_partition(words.begin(), words.end(), [](const std::string& word) { return !is_model_key(word); });
  args.model.keys.assign(keys, words.end());
  words.erase(keys, words.end());
}

int predict(PredictArguments args, const Parts& parts) {
  take_model_keys(args);
  check(!args.checkpoint.empty() || (args.model.given() && !args.weights.empty()), ErrorKind::Usage, "predict",
        "give --checkpoint DIR, or --model NAME with --weights FILE, and model.KEY=VALUE for another size");
  check(args.checkpoint.empty() || !args.model.given(), ErrorKind::Usage, "predict", "--checkpoint has its own model; omit --model");
  check(!args.pictures.empty(), ErrorKind::Usage, "predict", "no images are given");
  check_writable({args.logits});
  const auto predictor = args.checkpoint.empty() ? Predictor::from_weights(args.model.part(parts), args.weights, args.device, parts)
                                                 : Predictor::from_checkpoint(args.checkpoint, args.model.keys, args.device, parts);
  Json results = Json::array();
  std::string text;
  std::vector<at::Tensor> all;
  for (const auto& path : args.pictures) {
    all.push_back(predictor(predictor.read_picture(path).unsqueeze(0)));
    text += path + "\n";
    Json top = Json::array();
    for (const auto& answer : predictor.top_answers(all.back(), args.top)) {
      top.push_back(Json::object({{"class", answer.label}, {"name", answer.name}, {"probability", answer.probability}}));
      char line[256];
      std::snprintf(line, sizeof line, "  %6.2f %%  %s\n", 100 * answer.probability, answer.name.c_str());
      text += line;
    }
    results.push_back(Json::object({{"picture", path}, {"top", top}}));
  }
  if (!args.logits.empty()) save_npy(args.logits, at::cat(all));
  print(args.json, Json::object({{"predictions", results}}), text);
  return 0;
}

}  // namespace

void add_predict(CLI::App& app, Command& run) {
  auto args = std::make_shared<PredictArguments>();
  auto* sub = app.add_subcommand("predict", "classify images");
  sub->add_option("--checkpoint", args->checkpoint, "a checkpoint, its checkpoints/ folder, or a run's folder");
  add_model_options(*sub, args->model, "alternatively: name of a model ...");
  sub->add_option("--weights", args->weights, "... with weights from this file or folder, of any kind that npu_tool weights reads");
  sub->add_option("--device", args->device, "auto | cpu | cuda[:i] | npu[:i]");
  sub->add_option("--top", args->top, "number of classes to show")->check(above_zero());
  sub->add_option("--logits", args->logits, "write the logits of all images to this .npy file");
  sub->add_option("images", args->pictures, "JPEG or PNG files, and model.KEY=VALUE")->required();
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return predict(*args, parts); }; });
}

}  // namespace npu_train::cli
