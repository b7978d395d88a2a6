/// Other programs, run with limits and without a shell; and the end of this one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// The end of a command, and its output.
struct CommandResult {
  enum class End { Exited, NotFound, TimedOut, Signalled };
  End end = End::NotFound;
  int status = 0;        ///< exit code, or the number of the signal
  std::string output{};  ///< stdout and stderr, at most CommandOptions::max_output bytes
  bool ok() const { return end == End::Exited && status == 0; }
};

/// The limits of a command.
struct CommandOptions {
  /// Seconds after which the command is killed, with the processes that it started: it has its own process group. Without a deadline it
  /// stays in the group of this process, and Ctrl-C also ends it.
  std::optional<std::chrono::milliseconds> deadline = std::chrono::seconds(10);
  size_t max_output = size_t{1} << 20;       ///< bytes; further output is read and discarded
  std::optional<uint64_t> max_file_bytes{};  ///< a signal ends the command if it writes a larger file
};

/// Runs `words`, the first of which is searched in PATH, with an empty stdin. Never throws for a failure of the command: one that cannot be
/// run is NotFound.
CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options = {});

/// Ends the process with this exit code, as a return from main() does, but without destroying static objects: those of libtorch, its tables
/// of operators, take a tenth of a second. What was written to stdio and iostreams arrives; functions that were given to
/// std::at_quick_exit() are called, and those given to std::atexit() are not.
[[noreturn]] void end_process(int code);

}  // namespace npu_train
