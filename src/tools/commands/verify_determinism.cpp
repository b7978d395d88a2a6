#include "npu_train/tools/validate/verify_determinism.hpp"
#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/io/json.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct VerifyArguments {
  std::vector<std::string> words;
  VerifyDeterminismOptions options;
  bool json = false;
};

int verify(const VerifyArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "verify-determinism", "no configuration; give CONFIG.yaml [key=value ...]");
  const auto report = verify_determinism(load_config(file, overrides, parts), parts, args.options);
  print(args.json,
        Json::object({{"passed", report.passed},
                      {"steps", report.steps},
                      {"different_when_repeated", npu_train::detail::json_list(report.repeat)},
                      {"different_with_other_workers", npu_train::detail::json_list(report.workers)},
                      {"digest", report.digest}}),
        report.str() + "\n");
  return report.passed ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_verify_determinism(CLI::App& app, Command& run) {
  auto args = std::make_shared<VerifyArguments>();
  auto* sub =
      app.add_subcommand("verify-determinism", "prove that a configuration is repeatable bit for bit, with any number of loader workers");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_option("--steps", args->options.steps, "optimizer steps of each run")->capture_default_str();
  sub->add_option("--other-workers", args->options.other_workers, "loader workers of the third run")->capture_default_str();
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return verify(*args, parts); }; });
}

}  // namespace npu_train::cli
