#include <ATen/ops/cat.h>

#include <algorithm>
#include <cstdio>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/io/npy.hpp"
#include "predict_om.hpp"

namespace npu_train::cli {
namespace {

struct PredictArguments {
  std::string checkpoint, weights, logits, device = "auto";
  ModelArguments model;
  OfflineArguments offline;
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

void check_arguments(const PredictArguments& args) {
  const bool own = args.model.given() || !args.weights.empty() || !args.model.keys.empty() || args.model.num_classes != 0;
  if (args.offline.given()) {
    check(!own, ErrorKind::Usage, "predict", "--om has its own network; omit --model, --num-classes, --weights and model.KEY=VALUE");
  } else {
    check(!args.checkpoint.empty() || (args.model.given() && !args.weights.empty()), ErrorKind::Usage, "predict",
          "give --checkpoint DIR, or --model NAME with --weights FILE, and model.KEY=VALUE for another size, or --om FILE");
    check(args.offline.mean.empty() && args.offline.std.empty() && args.offline.classes.empty(), ErrorKind::Usage, "predict",
          "--mean, --std and --classes are for --om");
  }
  check(args.checkpoint.empty() || !args.model.given(), ErrorKind::Usage, "predict", "--checkpoint has its own model; omit --model");
  check(!args.pictures.empty(), ErrorKind::Usage, "predict", "no images are given");
}

// [images, classes], and the names of the classes.
OfflineLogits logits_of(const PredictArguments& args, const Parts& parts) {
  if (args.offline.given()) return offline_logits(args.offline, args.checkpoint, args.device, args.pictures, parts);
  const auto predictor = args.checkpoint.empty() ? Predictor::from_weights(args.model.part(parts), args.weights, args.device, parts)
                                                 : Predictor::from_checkpoint(args.checkpoint, args.model.keys, args.device, parts);
  const auto& model = predictor.model();
  check(model.inputs.size() <= 1, ErrorKind::Usage, "predict", "the model '", model.name, "' has ", model.inputs.size(),
        " inputs, and predict classifies images; hint: generate answers questions about an image, export writes any model");
  std::vector<at::Tensor> all;
  for (const auto& path : args.pictures) all.push_back(predictor(predictor.read_picture(path).unsqueeze(0)));
  return {at::cat(all), predictor.classes()};
}

int predict(PredictArguments args, const Parts& parts) {
  take_model_keys(args);
  check_arguments(args);
  check_writable({args.logits});
  const auto [logits, classes] = logits_of(args, parts);
  Json results = Json::array();
  std::string text;
  for (size_t i = 0; i < args.pictures.size(); ++i) {
    text += args.pictures[i] + "\n";
    Json top = Json::array();
    for (const auto& answer : top_answers(logits[static_cast<int64_t>(i)], classes, args.top)) {
      top.push_back(Json::object({{"class", answer.label}, {"name", answer.name}, {"probability", answer.probability}}));
      text += printed("  %6.2f %%  %s\n", 100 * answer.probability, answer.name.c_str());
    }
    results.push_back(Json::object({{"picture", args.pictures[i]}, {"top", top}}));
  }
  if (!args.logits.empty()) save_npy(args.logits, logits);
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
  add_offline_options(*sub, args->offline);
  sub->add_option("--device", args->device, "auto | cpu | cuda[:i] | npu[:i]");
  sub->add_option("--top", args->top, "number of classes to show")->check(above_zero());
  sub->add_option("--logits", args->logits, "write the logits of all images to this .npy file");
  sub->add_option("images", args->pictures, "JPEG or PNG files, and model.KEY=VALUE")->required();
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return predict(*args, parts); }; });
}

}  // namespace npu_train::cli
