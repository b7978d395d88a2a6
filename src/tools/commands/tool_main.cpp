// npu_tool SUBCOMMAND ...: tools around training; each prints JSON with --json.
#include <CLI/CLI.hpp>

#include "commands.hpp"
#include "npu_train/core/c_locale.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/host_arena.hpp"
#include "npu_train/tools/commands/main.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train {

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
  cli::Command run;
  std::function<int()> launch;
  cli::add_eval(app, run);
  cli::add_predict(app, run);
  cli::add_summary(app, run);
  cli::add_weights(app, run);
  cli::add_export(app, run);
  cli::add_bench(app, run);
  cli::add_verify_determinism(app, run);
  cli::add_compare(app, run);
  cli::add_validate(app, run);
  cli::add_analyze(app, run);
  cli::add_doctor(app, run, launch);
  cli::add_memory(app, run);
  cli::add_plan(app, run);
  cli::add_baseline(app, run);
  cli::add_checklist(app, run);
  cli::add_data(app, run);
  cli::add_tokenize(app, run);
  cli::add_generate(app, run);
  cli::add_launch(app, launch);
  try {
    const CLocale numbers;
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return cli::parse_end(app, e, argc, argv, parts);
  }
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
    // until the process ends: after an error, threads of a device may still compute in its memory
    static const auto arena = host_arena_from_environment();
    register_devices(parts);
    return run(parts);
  });
}

}  // namespace npu_train
