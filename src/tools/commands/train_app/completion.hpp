// Completion of the programs' command lines in bash and zsh.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace npu_train::cli {

/// Adds the option `--completion SHELL` of a program.
void add_completion(CLI::App& app, const std::string& program, std::string& shell);

/// Returns the script by which a shell, "bash" or "zsh", completes commands, options, files and, where a configuration is expected,
/// `overrides`. Error(Usage) for another shell.
std::string completion_script(const CLI::App& app, const std::string& program, const std::string& shell,
                              const std::vector<std::string>& overrides);

}  // namespace npu_train::cli
