/// Other programs, run with limits and without a shell.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// How a command ended, and what it said.
struct CommandResult {
  enum class End { Exited, NotFound, TimedOut, Signalled };
  End end = End::NotFound;
  int status = 0;        ///< exit code, or the number of the signal
  std::string output{};  ///< stdout and stderr, at most CommandOptions::max_output bytes
  bool ok() const { return end == End::Exited && status == 0; }
};

/// The limits of a command.
struct CommandOptions {
  /// Afterwards the command is killed, with the processes that it started: it has a process group of its own. Without a deadline it stays
  /// in the group of this process, and Ctrl-C ends it too.
  std::optional<std::chrono::milliseconds> deadline = std::chrono::seconds(10);
  size_t max_output = size_t{1} << 20;       ///< bytes; more is read and dropped
  std::optional<uint64_t> max_file_bytes{};  ///< a signal ends the command when it writes a larger file
};

/// Runs `words`, the first of which is looked up in PATH, with an empty stdin. Never throws for what a command does: one that cannot be run
/// is NotFound.
CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options = {});

}  // namespace npu_train
