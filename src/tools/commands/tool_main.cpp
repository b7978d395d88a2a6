// npu_tool SUBCOMMAND ...: tools around training; each prints JSON with --json.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include "commands.hpp"
#include "npu_train/core/c_locale.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/host_arena.hpp"
#include "npu_train/tools/commands/main.hpp"
#include "tools/commands/train_app/cli.hpp"
#include "tools/commands/train_app/completion.hpp"
#include "tools/commands/train_app/config_texts.hpp"

namespace npu_train {
namespace {

// Adds commands that the help lists under a common title.
template <class... Add>
void add_section(CLI::App& app, const std::string& title, cli::Command& run, const Add&... add) {
  const auto all = [&] { return app.get_subcommands([](const CLI::App*) { return true; }); };
  const auto before = all().size();
  (add(app, run), ...);
  const auto now = all();
  for (size_t i = before; i < now.size(); ++i) now[i]->group(title);
}

// Requires the proper ending for the files of --html and --logits: `predict --html *.jpg` would otherwise replace the first image with the
// page.
void check_output_names(CLI::App& app) {
  const auto ends_in = [](const std::vector<std::string>& endings) {
    return CLI::Validator(
        [endings](const std::string& file) {
          const auto fits = [&](const std::string& ending) { return to_lower(file).ends_with(ending); };
          return file.empty() || std::any_of(endings.begin(), endings.end(), fits)
                     ? std::string()
                     : file + "; allowed: a name that ends in " + join(endings, " or ");
        },
        "");
  };
  for (auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (auto* html = sub->get_option_no_throw("--html")) html->check(ends_in({".html", ".htm"}));
    if (auto* logits = sub->get_option_no_throw("--logits"); logits != nullptr && logits->get_items_expected_max() > 0)
      logits->check(ends_in({".npy"}));
    check_output_names(*sub);
  }
}

}  // namespace

int tool_main(int argc, char** argv, const Parts& parts) {
  cli::open_standard_descriptors();
  cli::leave_stdout_to_main_rank();
  cli::raise_descriptor_limit();
  cli::drop_launch_separator(argc, argv);
  CLI::App app("Tools around training.");
  app.require_subcommand(0, 1);
  bool version = false;
  app.add_flag("--version", version, "print versions and devices");
  bool parse_only = false;
  app.add_flag("--parse-only", parse_only, "read the command line, report its errors, and stop");
  std::string completion;
  cli::add_completion(app, "npu_tool", completion);
  cli::Command run;
  std::function<int()> launch;
  add_section(app, "Models and data", run, cli::add_eval, cli::add_predict, cli::add_generate, cli::add_summary, cli::add_weights,
              cli::add_average, cli::add_export, cli::add_data, cli::add_tokenize, cli::add_find_lr);
  // docs/tools.md names the library of each section
  add_section(app, "Agreement of runs and devices (npu_train::align)", run, cli::add_compare, cli::add_validate,
              cli::add_verify_determinism, cli::add_report, cli::add_serve);
  add_section(app, "Speed and memory (npu_train::measure)", run, cli::add_bench, cli::add_baseline, cli::add_memory, cli::add_find_batch,
              cli::add_plan, cli::add_profile);
  add_section(app, "Machines (npu_train::check)", run, [&](CLI::App& to, cli::Command& command) { cli::add_doctor(to, command, launch); });
  add_section(app, "Migration (npu_train::migrate)", run, cli::add_analyze, cli::add_checklist);
  add_section(app, "Several processes", run, [&](CLI::App& to, cli::Command&) { cli::add_launch(to, launch); });
  check_output_names(app);
  try {
    const CLocale numbers;
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::parse_end(app, e, argc, argv, parts);
  }
  if (!completion.empty())
    return cli::guarded([&] {
      std::fputs(cli::completion_script(app, "npu_tool", completion, cli::override_words(parts)).c_str(), stdout);
      return 0;
    });
  if (version) {
    register_devices(parts);
    std::puts(cli::version_text().c_str());
    return cli::written(0);
  }
  if (!run && !launch) {
    std::fputs(app.help().c_str(), stderr);
    return static_cast<int>(ErrorKind::Usage);
  }
  if (parse_only) return 0;
  ScopedLogSink sink(cli::make_program_sink());
  if (launch) return cli::guarded(launch);
  return cli::guarded([&] {
    // exists until the process ends: after an error, threads of a device may still compute in its memory
    static const auto arena = host_arena_from_environment();
    register_devices(parts);
    return run(parts);
  });
}

}  // namespace npu_train
