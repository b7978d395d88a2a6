#include <algorithm>
#include <filesystem>
#include <system_error>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/tools/probe/data_check.hpp"
#include "npu_train/tools/probe/data_show.hpp"
#include "npu_train/tools/probe/data_stats.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct DataArguments {
  std::vector<std::string> words;
  std::string html, split = "train";
  DataShowOptions show;
  bool json = false;
};

RunConfig data_config(const DataArguments& args, const char* command, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  const bool takes_folders = std::string_view(command) == "data stats";
  check(!file.empty(), ErrorKind::Usage, command, "no configuration is given; hint: add CONFIG.yaml [key=value ...]",
        takes_folders ? ", or a folder of images" : "");
  std::error_code none;
  check(takes_folders || !std::filesystem::is_directory(file, none), ErrorKind::Usage, command, file,
        ": this is a folder; allowed: CONFIG.yaml [key=value ...]; hint: npu_tool data stats reads a folder of images; with a "
        "configuration: data='{name: image_folder, root: FOLDER}'");
  return load_config(file, overrides, parts);
}

int data_check(const DataArguments& args, const Parts& parts) {
  const auto report = check_data(data_config(args, "data check", parts), parts, progress_on_stderr("samples"));
  show(report_of(report), args.json);
  return report.passed() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

DataStatistics statistics_for(const DataArguments& args, const Parts& parts) {
  std::error_code none;
  const bool folder = args.words.size() == 1 && std::filesystem::is_directory(args.words.front(), none);
  if (folder) return folder_statistics(args.words.front(), parts, progress_on_stderr("samples"));
  return data_statistics(data_config(args, "data stats", parts), parts, progress_on_stderr("samples"));
}

int data_stats(const DataArguments& args, const Parts& parts) {
  check_writable({args.html});
  const auto statistics = statistics_for(args, parts);
  show(report_of(statistics), args.json, args.html);
  if (statistics.bad.empty()) return 0;
  std::vector<std::string> errors;
  for (const auto& sample : statistics.bad) errors.push_back(sample.message);
  throw Error(ErrorKind::Data, "data stats",
              str_cat(errors.size(), " of ", statistics.train + statistics.val,
                      " samples cannot be read: ", npu_train::detail::first_few(errors, 8)));
}

// Names the images that are missing because a sample cannot be read. With mixing, the unreadable sample may be another one of the same
// micro-batch.
std::vector<std::string> unreadable_images(const DataShow& shown) {
  std::vector<std::string> out;
  for (const auto& sample : shown.samples)
    if (std::any_of(sample.versions.begin(), sample.versions.end(), [](const auto& version) { return version.unreadable; }))
      out.push_back(sample.file.empty() ? str_cat("sample ", sample.index) : sample.file);
  return out;
}

int data_show(const DataArguments& args, const Parts& parts) {
  check(!args.html.empty(), ErrorKind::Usage, "data show", "no page is named; hint: add --html PAGE.html");
  check_writable({args.html});
  auto options = args.show;
  options.validation = args.split == "val";
  const auto shown = show_data(data_config(args, "data show", parts), options, parts, progress_on_stderr("images"));
  auto report = report_of(shown);
  report.data({{"html", args.html}});
  show(report, args.json, args.html);
  const auto missing = unreadable_images(shown);
  check(!shown.samples.empty(), ErrorKind::Data, "data show", "there are no samples to show");
  check(missing.empty(), ErrorKind::Data, "data show", missing.size(), " of ", shown.samples.size(),
        " images cannot be shown: ", npu_train::detail::first_few(missing, 8), "; ", args.html, " has the reasons");
  return 0;
}

}  // namespace

void add_data(CLI::App& app, Command& run) {
  auto args = std::make_shared<DataArguments>();
  auto* data = app.add_subcommand("data", "look at the data of a configuration");
  data->require_subcommand(1);
  const auto add = [&](const char* name, const char* text, const char* words, int (*command)(const DataArguments&, const Parts&)) {
    auto* sub = data->add_subcommand(name, text);
    sub->add_option("config", args->words, words);
    sub->add_flag("--json", args->json, "one JSON document on stdout");
    sub->callback([args, &run, command] { run = [args, command](const Parts& parts) { return command(*args, parts); }; });
    return sub;
  };
  add("check", "read every sample once: how many of each class, and which cannot be read (exit code 7)", "CONFIG.yaml [key=value ...]",
      data_check);
  auto* stats = add("stats", "count images by class, size and mode, and compute mean and deviation of each channel; of texts their lengths",
                    "a folder of images, or CONFIG.yaml [key=value ...]", data_stats);
  stats->add_option("--html", args->html, "write a page");
  auto* show = add("show", "write a page of training images as the model sees them: transformed, mixed, with their classes",
                   "CONFIG.yaml [key=value ...]", data_show);
  show->add_option("--html", args->html, "the page; required");
  show->add_option("--images", args->show.images, "number of images, drawn by the key seed")->check(above_zero())->capture_default_str();
  show->add_option("--versions", args->show.versions,
                   "epochs in which each image is shown; default: 4; 1 of validation images and of a stream")
      ->check(above_zero());
  show->add_option("--split", args->split, "train or val: the part of the data")
      ->check(CLI::IsMember({"train", "val"}))
      ->capture_default_str();
}

}  // namespace npu_train::cli
