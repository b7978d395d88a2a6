// Completion of the programs' command lines in bash and zsh.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace npu_train::cli {

/// Adds the option `--completion SHELL` of a program.
void add_completion(CLI::App& app, const std::string& program, std::string& shell);

/// Returns the script of a shell, "bash" or "zsh", that completes commands, options, `overrides` where a configuration is expected, and
/// files. Error(Usage) for another shell.
std::string completion_script(const CLI::App& app, const std::string& program, const std::string& shell,
                              const std::vector<std::string>& overrides);

}  // namespace npu_train::cli
