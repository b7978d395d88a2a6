// The subcommands of npu_tool. Each adds itself to the parser; the one that was chosen sets `run`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/io/json.hpp"
#include "number_checks.hpp"

namespace npu_train::cli {

using Command = std::function<int(const Parts& parts)>;

void add_eval(CLI::App& app, Command& run);
void add_predict(CLI::App& app, Command& run);
void add_summary(CLI::App& app, Command& run);
void add_weights(CLI::App& app, Command& run);
void add_bench(CLI::App& app, Command& run);
void add_verify_determinism(CLI::App& app, Command& run);
void add_compare(CLI::App& app, Command& run);
void add_validate(CLI::App& app, Command& run);
void add_analyze(CLI::App& app, Command& run);
void add_doctor(CLI::App& app, Command& run);
void add_memory(CLI::App& app, Command& run);
void add_baseline(CLI::App& app, Command& run);
void add_checklist(CLI::App& app, Command& run);
void add_data(CLI::App& app, Command& run);

/// One JSON document on stdout, or the text for people, its lines broken to the width of the terminal.
void print(bool json, const Json& document, const std::string& text);

/// Error(Checkpoint) where one of the files could not be written, Error(Usage) where it would be inside a checkpoint: reported before the
/// work whose result they are to hold. "" is none.
void check_writable(const std::vector<std::string>& files);

/// The bytes of a size on the command line ("32GiB"); Error(Usage) names `option` where it is none.
int64_t size_argument(const char* option, const std::string& text);

/// The configuration of a checkpoint with overrides, bound.
RunConfig checkpoint_config(const std::string& checkpoint, const std::vector<std::string>& overrides, const Parts& parts);

}  // namespace npu_train::cli
