#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/image_dataset.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/io/npy.hpp"
#include "predict_answers.hpp"
#include "predict_om.hpp"
#include "predict_page.hpp"

namespace npu_train::cli {
namespace {

constexpr const char* kPredictImages = "predict";

struct PredictArguments {
  std::string logits, to, html, list, device = "auto";
  ModelArguments model;
  OfflineArguments offline;
  int64_t top = 5;
  std::vector<std::string> images;
  bool json = false;
};

// Moves words of the form model.KEY=VALUE from the list of images to the model's arguments.
void take_model_keys(PredictArguments& args) {
  auto& words = args.images;
  const auto keys = std::stable_partition(words.begin(), words.end(), [](const std::string& word) { return !is_model_key(word); });
  args.model.keys.assign(keys, words.end());
  words.erase(keys, words.end());
}

void check_arguments(const PredictArguments& args) {
  const auto& model = args.model;
  if (args.offline.given()) {
    check(!model.named() && model.weights.empty() && model.keys.empty() && model.num_classes == 0, ErrorKind::Usage, kPredictImages,
          "--om has its own network; omit --model, --num-classes, --weights and model.KEY=VALUE");
  } else {
    check(
        model.named() || !model.weights.empty() || !model.checkpoint.empty(), ErrorKind::Usage, kPredictImages,
        "give --checkpoint DIR, or --model NAME with --weights FILE, and model.KEY=VALUE for another size, or --weights FOLDER of Hugging "
        "Face, or --om FILE");
    check(args.offline.mean.empty() && args.offline.std.empty() && args.offline.classes.empty(), ErrorKind::Usage, kPredictImages,
          "--mean, --std and --classes are for --om");
  }
  check(!args.images.empty(), ErrorKind::Usage, kPredictImages, "no images are given; hint: files, folders, or --list FILE");
}

struct Predictions {
  at::Tensor logits;  // [images, classes]; NaN for an unreadable image
  std::vector<std::string> classes;
  OutputMeaning meaning = OutputMeaning::OneClass;
  std::string checkpoint, why;
  bool averages = false;
  std::map<size_t, std::string> unreadable;  // reasons, by index of the image
};

// Joins the rows of logits; rows of unreadable images become NaN.
at::Tensor whole_logits(const std::vector<at::Tensor>& rows) {
  const auto known = std::find_if(rows.begin(), rows.end(), [](const at::Tensor& row) { return row.defined(); });
  if (known == rows.end()) return {};
  std::vector<at::Tensor> out;
  for (const auto& row : rows) out.push_back(row.defined() ? row : at::full_like(*known, std::numeric_limits<double>::quiet_NaN()));
  return at::cat(out);
}

Predictions predictions_of(const PredictArguments& args, const Parts& parts) {
  Predictions out;
  const auto progress = progress_on_stderr("images");
  const auto note = [&](size_t image, const Error& error) { out.unreadable[image] = error.what(); };
  if (args.offline.given()) {
    std::tie(out.logits, out.classes, out.meaning) =
        offline_logits(args.offline, args.model.checkpoint, args.device, args.images, note, progress, parts);
    return out;
  }
  const auto predictor = Predictor::from_source(args.model.source(kPredictImages, /*needs_weights=*/true, parts), args.device, parts);
  const auto& model = predictor.model();
  check(model.inputs.size() <= 1, ErrorKind::Usage, kPredictImages, "the model '", model.name, "' has ", model.inputs.size(),
        " inputs, and predict classifies images; hint: generate answers questions about an image, export writes any model");
  std::vector<at::Tensor> rows(args.images.size());
  const auto count = static_cast<int64_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    progress(static_cast<int64_t>(i), count);
    at::Tensor image;
    try {
      image = predictor.read_image(args.images[i]);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Data) throw;
      note(i, error);
      continue;
    }
    rows[i] = predictor(image.unsqueeze(0));
  }
  progress(count, count);
  out.logits = whole_logits(rows);
  out.classes = predictor.classes();
  out.meaning = predictor.meaning();
  out.checkpoint = predictor.checkpoint();
  out.why = predictor.why();
  out.averages = predictor.averages();
  return out;
}

std::vector<std::pair<std::string, double>> named_numbers(const at::Tensor& row, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, double>> out;
  for (int64_t i = 0; i < row.numel(); ++i)
    out.emplace_back(i < static_cast<int64_t>(names.size()) ? names[static_cast<size_t>(i)] : str_cat("value_", i), row[i].item<double>());
  return out;
}

std::vector<ImageAnswer> answers_of(const Predictions& predicted, const std::vector<std::string>& images, int64_t top) {
  std::vector<ImageAnswer> out;
  for (size_t i = 0; i < images.size(); ++i) {
    ImageAnswer answer{images[i], {}, {}};
    if (const auto error = predicted.unreadable.find(i); error != predicted.unreadable.end())
      answer.error = error->second;
    else if (const auto row = predicted.logits[static_cast<int64_t>(i)]; predicted.meaning == OutputMeaning::Numbers)
      answer.numbers = named_numbers(row, predicted.classes);
    else
      answer.top = top_answers(row, predicted.classes, top, predicted.meaning);
    out.push_back(std::move(answer));
  }
  return out;
}

// Prints the answers, or where they were written, and writes the page.
void report(const PredictArguments& args, const Predictions& predicted, const std::vector<ImageAnswer>& answers) {
  auto document = Json::object({{"checkpoint", predicted.checkpoint.empty() ? Json() : Json(predicted.checkpoint)}});
  auto text = checkpoint_line(predicted.checkpoint, predicted.why, predicted.averages);
  if (!predicted.checkpoint.empty()) document.set("why", predicted.why).set("weights", predicted.averages ? "ema" : "plain");
  if (!args.to.empty()) {
    text += str_cat(args.to, ": ", with_commas(static_cast<int64_t>(answers.size())), answers.size() == 1 ? " image\n" : " images\n");
    document.set("to", args.to);
  } else {
    Json results = Json::array();
    for (const auto& answer : answers) {
      results.push_back(json_of(answer));
      text += text_of(answer);
    }
    document.set("predictions", std::move(results));
  }
  Report out("Predictions", std::move(document));
  out.late_text([&](size_t /*most*/, size_t /*width*/) { return text; });
  if (!args.html.empty()) {
    const std::string of =
        predicted.checkpoint.empty() ? "" : "Checkpoint " + predicted.checkpoint + (predicted.averages ? ", averages (EMA)" : "");
    add_predictions_page(out, answers, of, progress_on_stderr("thumbnails"));
  }
  show(out, args.json, args.html);
}

int predict(PredictArguments args, const Parts& parts) {
  take_model_keys(args);
  if (!args.list.empty()) {
    const auto listed = listed_images(args.list);
    args.images.insert(args.images.end(), listed.begin(), listed.end());
  }
  check_arguments(args);
  check_answers_file(args.to);
  check_writable({args.logits, args.to, args.html});
  args.images = image_files(args.images);
  const auto predicted = predictions_of(args, parts);
  const auto answers = answers_of(predicted, args.images, args.top);
  if (!args.logits.empty() && predicted.logits.defined()) save_npy(args.logits, predicted.logits);
  if (!args.to.empty()) write_answers(args.to, answers, args.top);
  report(args, predicted, answers);
  if (predicted.unreadable.empty()) return 0;
  std::vector<std::string> errors;
  for (const auto& [image, error] : predicted.unreadable) errors.push_back(error);
  throw Error(ErrorKind::Data, kPredictImages,
              str_cat(errors.size(), " of ", args.images.size(), " images cannot be read: ", npu_train::detail::first_few(errors, 8)));
}

}  // namespace

void add_predict(CLI::App& app, Command& run) {
  auto args = std::make_shared<PredictArguments>();
  auto* sub = app.add_subcommand("predict", "classify images");
  add_source_options(*sub, args->model);
  add_offline_options(*sub, args->offline);
  sub->add_option("--device", args->device, "auto | cpu | cuda[:i] | npu[:i]");
  sub->add_option("--top", args->top, "number of classes to show")->check(above_zero());
  sub->add_option("--logits", args->logits,
                  "write the logits of all images to this .npy file; those of an image that cannot be read are NaN");
  sub->add_option("--to", args->to, "write a row for each image to this .csv or .jsonl file; that of an unreadable image has the reason");
  sub->add_option("--html", args->html, "write a page: a thumbnail of each image with its answers, by class");
  sub->add_option("--list", args->list, "a file with the path of an image or folder a line; - for standard input");
  sub->add_option("images", args->images, "image files, folders of them, and model.KEY=VALUE");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return predict(*args, parts); }; });
}

}  // namespace npu_train::cli
