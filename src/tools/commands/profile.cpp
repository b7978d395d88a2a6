#include <filesystem>
#include <memory>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/tools/analyze/msprof.hpp"
#include "tools/commands/commands.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct ProfileArguments {
  std::string profile, msprof, html;
  size_t rows = 30;
  bool json = false;
};

// Returns the profile in a run's folder or in its folder `profile`; for a file, the file itself.
std::filesystem::path profile_file(const std::filesystem::path& given) {
  std::error_code ignored;
  for (const auto& file : {given / "profile" / "profile.json", given / "profile.json"})
    if (std::filesystem::exists(file, ignored)) return file;
  check(!std::filesystem::is_directory(given, ignored), ErrorKind::Usage, "profile", given.string(),
        ": there is no profile.json; hint: record one with trainer.profiler=chrome");
  return given;
}

int profile(const ProfileArguments& args) {
  check_writable({args.html});
  const auto file = profile_file(args.profile);
  show(merged_report(load_json(file), file.string(), read_msprof(args.msprof)), args.json, args.html, args.rows);
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Command& run) {
  auto args = std::make_shared<ProfileArguments>();
  auto* sub = app.add_subcommand("profile", "show the operators of a run's profile next to msprof's, merged by operator");
  sub->add_option("profile", args->profile, "folder of a run, or its profile.json (trainer.profiler=chrome)")->required();
  sub->add_option("--msprof", args->msprof, "op_summary_*.csv or op_statistic_*.csv, or the folder that msprof wrote")->required();
  sub->add_option("--rows", args->rows, "number of operators to show; 0: all")->capture_default_str();
  sub->add_option("--html", args->html, "write a self-contained HTML page");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts&) { return profile(*args); }; });
}

}  // namespace npu_train::cli
