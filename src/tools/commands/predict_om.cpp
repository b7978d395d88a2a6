#include "predict_om.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/export/onnx_metadata.hpp"
#include "npu_train/io/file.hpp"
#include "tools/commands/console/number_checks.hpp"

namespace npu_train::cli {
namespace {

constexpr const char* kPredict = "predict";
constexpr uint64_t kMaxClassNames = uint64_t{16} << 20;
constexpr size_t kChannels = 3;

using OnnxEntries = std::map<std::string, std::string>;

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> out;
  for_each_line(text, [&](std::string_view line) { out.emplace_back(line); });
  return out;
}

// Returns the device number: 2 for "npu:2", 0 for "npu" and "auto".
int npu_of(const std::string& device) {
  if (device == "auto" || device == "npu") return 0;
  const auto number = device.starts_with("npu:") ? whole_number(device.substr(4)) : std::nullopt;
  check(number && *number >= 0 && *number < 1024, ErrorKind::Usage, kPredict, "--device ", device,
        " with --om; allowed: npu, npu:N, auto (npu:0)");
  return static_cast<int>(*number);
}

std::vector<double> statistics_of(const std::string& text) {
  std::vector<double> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) out.push_back(decimal_number(word).value_or(0));
  return out;
}

// Returns the entries of the ONNX file that npu_tool export writes next to the offline model.
OnnxEntries entries_next_to(std::filesystem::path om) {
  om.replace_extension(".onnx");
  std::error_code none;
  if (!std::filesystem::is_regular_file(om, none)) return {};
  const auto entries = onnx_metadata(om);
  return {entries.begin(), entries.end()};
}

struct Preparation {
  ImagePreparation images;
  std::vector<std::string> classes;
  OutputMeaning meaning = OutputMeaning::OneClass;
};

Preparation preparation_by_options(const OfflineArguments& args, const OfflineImages& images, const Parts& parts) {
  auto entries = entries_next_to(args.file);
  check(args.mean.empty() || entries["npu_train.mean"].empty(), ErrorKind::Usage, kPredict, "the file .onnx next to ", args.file,
        " has a normalisation; omit --mean and --std, or move the file");
  const auto mean = args.mean.empty() ? statistics_of(entries["npu_train.mean"]) : args.mean;
  const auto std = args.std.empty() ? statistics_of(entries["npu_train.std"]) : args.std;
  const auto classes = names_in(entries["npu_train.classes"]);
  const auto& steps = entries["npu_train.transforms"];
  if (!steps.empty() && args.mean.empty())
    return {ImagePreparation::from_text(steps, {images.width, mean, std}, parts.transforms), classes, {}};
  const bool known = !mean.empty() && !std.empty();
  if (!known && !images.aipp)
    log_warning("predict: nothing near ", args.file,
                " describes the preparation of images, so that of ImageNet is used; hint: --checkpoint "
                "RUN, the file .onnx of the export next to it, or --mean and --std");
  return {known ? ImagePreparation::of_imagenet(images.width, mean, std) : ImagePreparation::of_imagenet(images.width), classes, {}};
}

void check_options(const OfflineArguments& args, const std::string& checkpoint, const OfflineImages& images) {
  check(args.mean.size() == args.std.size(), ErrorKind::Usage, kPredict, "--mean and --std belong together");
  if (args.mean.empty()) return;
  check(args.mean.size() == kChannels, ErrorKind::Usage, kPredict, "--mean and --std need ", kChannels,
        " numbers, of red, green and blue; given: ", args.mean.size());
  check(checkpoint.empty(), ErrorKind::Usage, kPredict, "a checkpoint has its own normalisation; omit --mean and --std");
  check(!images.aipp, ErrorKind::Usage, kPredict, args.file, " normalises images itself, by AIPP; omit --mean and --std");
}

}  // namespace

void add_offline_options(CLI::App& sub, OfflineArguments& args) {
  sub.add_option(
      "--om", args.file,
      "alternatively: an offline model of Ascend's compiler, run by CANN; normalisation and names are those of the file .onnx of the "
      "export next to it, or of --checkpoint");
  sub.add_option("--mean", args.mean, "with --om without these files: the normalisation, by channel, for values in [0, 1] ...")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub.add_option("--std", args.std, "... 0.229,0.224,0.225")->delimiter(',')->allow_extra_args(false)->check(above_zero());
  sub.add_option("--classes", args.classes, "with --om: a file with the name of a class a line");
}

OfflineLogits offline_logits(const OfflineArguments& args, const std::string& checkpoint, const std::string& device,
                             const std::vector<std::string>& images, const OfflinePredictor::OnBadImage& bad, const WorkProgress& progress,
                             const Parts& parts) {
  OfflineModel model(args.file, npu_of(device));
  const auto taken = images_of(model);
  check_options(args, checkpoint, taken);
  const auto prepared = [&]() -> Preparation {
    if (checkpoint.empty()) return preparation_by_options(args, taken, parts);
    const auto trained = Predictor::from_checkpoint(checkpoint, "cpu", parts);
    return {trained.preparation(), trained.classes(), trained.meaning()};
  }();
  OfflinePredictor predictor(std::move(model), prepared.images);
  auto classes = args.classes.empty() ? prepared.classes : names_in(read_file(args.classes, kMaxClassNames));
  check(classes.empty() || static_cast<int64_t>(classes.size()) == predictor.classes(), ErrorKind::Usage, kPredict, args.file, " has ",
        predictor.classes(), " classes; there are ", classes.size(), " names in ",
        !args.classes.empty() ? args.classes
        : !checkpoint.empty() ? checkpoint
                              : "the file .onnx next to it");
  const auto shown = [&](size_t done) { progress(static_cast<int64_t>(done), static_cast<int64_t>(images.size())); };
  return {predictor.logits(images, bad, shown), std::move(classes), prepared.meaning};
}

}  // namespace npu_train::cli
