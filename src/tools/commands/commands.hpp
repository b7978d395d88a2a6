// The subcommands of npu_tool. Each adds itself to the parser; the selected one sets `run`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "tools/commands/console/console.hpp"
#include "tools/commands/console/number_checks.hpp"

namespace npu_train::cli {

using Command = std::function<int(const Parts& parts)>;

void add_eval(CLI::App& app, Command& run);
void add_predict(CLI::App& app, Command& run);
void add_summary(CLI::App& app, Command& run);
void add_export(CLI::App& app, Command& run);
void add_weights(CLI::App& app, Command& run);
void add_average(CLI::App& app, Command& run);
void add_find_batch(CLI::App& app, Command& run);
void add_find_lr(CLI::App& app, Command& run);
void add_bench(CLI::App& app, Command& run);
void add_verify_determinism(CLI::App& app, Command& run);
void add_compare(CLI::App& app, Command& run);
void add_validate(CLI::App& app, Command& run);
void add_analyze(CLI::App& app, Command& run);
/// `launch` is set if --dist is given, which starts processes before a device is initialised.
void add_doctor(CLI::App& app, Command& run, std::function<int()>& launch);
void add_memory(CLI::App& app, Command& run);
void add_plan(CLI::App& app, Command& run);
void add_profile(CLI::App& app, Command& run);
void add_baseline(CLI::App& app, Command& run);
void add_checklist(CLI::App& app, Command& run);
void add_data(CLI::App& app, Command& run);
void add_report(CLI::App& app, Command& run);
void add_serve(CLI::App& app, Command& run);
void add_tokenize(CLI::App& app, Command& run);
void add_generate(CLI::App& app, Command& run);
/// Sets no Command, because the launched processes start before a device is initialised.
void add_launch(CLI::App& app, std::function<int()>& run);
/// Removes the -- before the program of npu_tool launch; otherwise CLI11 would pass all following words to npu_tool itself.
void drop_launch_separator(int& argc, char** argv);

/// Returns the line of a command's text that names the selected checkpoint, the reason, and which weights are used; "" without a
/// checkpoint.
std::string checkpoint_line(const std::string& checkpoint, const std::string& why, bool averages);

/// Parses a size on the command line ("32GiB") into bytes; Error(Usage) names `option` if the text is not a size.
int64_t size_argument(const char* option, const std::string& text);

/// Returns the bound configuration of a checkpoint, with overrides applied.
RunConfig checkpoint_config(const std::string& checkpoint, const std::vector<std::string>& overrides, const Parts& parts);

}  // namespace npu_train::cli
