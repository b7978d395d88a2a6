// Common parts of train_app and npu_tool: the console, their version, and errors of their command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "npu_train/engine/parts.hpp"
#include "tools/commands/console/console.hpp"

namespace npu_train::cli {

/// Returns the exit code for an exception of CLI11: 0 for help, which goes to stdout, otherwise 2 with its message on stderr. If a
/// configuration key was given with dashes, shows the correct form (optimizer.lr=3).
int parse_end(const CLI::App& app, const CLI::ParseError& end, int argc, char** argv, const Parts& parts);

/// Returns the versions of the program and of libtorch, and the backends.
std::string version_text();

}  // namespace npu_train::cli
