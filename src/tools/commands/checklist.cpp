#include "npu_train/tools/checklist/checklist.hpp"

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct ChecklistArguments {
  std::vector<std::string> words;
  ChecklistOptions options;
  std::string html;
  bool json = false;
};

int checklist(const ChecklistArguments& args, const Parts& parts) {
  check_writable({args.html});
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "checklist", "no configuration; give CONFIG.yaml [key=value ...]");
  auto options = args.options;
  options.train = "train_app " + shell_word(file);
  for (const auto& text : overrides) options.train += " " + shell_word(text);
  const ScopedLogSink warnings(make_standard_sink(LogLevel::Warning));
  const auto list = migration_checklist(load_config(file, overrides, parts), options, parts);
  show(report_of(list), args.json, args.html);
  return list.count(ItemState::NotDone) == 0 ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_checklist(CLI::App& app, Command& run) {
  auto args = std::make_shared<ChecklistArguments>();
  auto& o = args->options;
  auto* sub = app.add_subcommand("checklist", "report the progress of a migration: environment, code, precision, performance, delivery");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]: a few steps of it are trained");
  sub->add_option("--device", o.device, "target device of the migration: npu[:i], sim_npu[:i], cuda[:i], cpu")->capture_default_str();
  sub->add_option("--soc", o.soc, "the chip, as for npu_tool analyze")->capture_default_str();
  sub->add_option("--torch", o.torch, "version of torch_npu")->capture_default_str();
  sub->add_option("--source", o.source, "folder of the project's sources, which are scanned");
  sub->add_option("--reference", o.reference, "baseline of the original device (npu_tool baseline)");
  sub->add_option("--baseline", o.baseline, "baseline of --device");
  sub->add_option("--steps", o.steps, "steps of each short run")->capture_default_str();
  sub->add_option("--html", args->html, "write a self-contained HTML page");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return checklist(*args, parts); }; });
}

}  // namespace npu_train::cli
