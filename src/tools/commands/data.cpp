#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/tools/probe/data_check.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct DataArguments {
  std::vector<std::string> words;
  bool json = false;
};

int data_check(const DataArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "data check", "no configuration is given; hint: npu_tool data check CONFIG.yaml [key=value ...]");
  const auto report = check_data(load_config(file, overrides, parts), parts);
  show(report_of(report), args.json);
  return report.passed() ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_data(CLI::App& app, Command& run) {
  auto args = std::make_shared<DataArguments>();
  auto* data = app.add_subcommand("data", "look at the data of a configuration");
  data->require_subcommand(1);
  auto* sub = data->add_subcommand("check", "read every sample once: how many of each class, and which cannot be read (exit code 7)");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return data_check(*args, parts); }; });
}

}  // namespace npu_train::cli
