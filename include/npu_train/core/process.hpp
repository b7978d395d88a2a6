/// Runs other programs with limits and without a shell; ends the current process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// The way in which a command ended, and its output.
struct CommandResult {
  enum class End { Exited, NotFound, TimedOut, Signalled };
  End end = End::NotFound;
  int status = 0;        ///< exit code or number of the signal
  std::string output{};  ///< stdout and stderr, truncated to CommandOptions::max_output bytes
  bool ok() const { return end == End::Exited && status == 0; }
};

struct CommandOptions {
  /// Time after which the command and the processes that it started (its process group) are killed. Without a deadline the command stays in
  /// this process's group, and Ctrl-C also ends it.
  std::optional<std::chrono::milliseconds> deadline = std::chrono::seconds(10);
  size_t max_output = size_t{1} << 20;       ///< bytes; more output is read and discarded
  std::optional<uint64_t> max_file_bytes{};  ///< a signal ends the command if it writes a larger file
};

/// Runs a command with an empty stdin. The first of the `words` is the program, which is searched for in PATH. A command that fails causes
/// no exception; for a command that cannot be started, the result is End::NotFound.
CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options = {});

/// Ends the process as a return from main() does, but does not destroy static objects, because destroying libtorch's operator tables takes
/// a tenth of a second. Flushes stdio and iostreams, and calls the functions of std::at_quick_exit(), but not those of std::atexit().
[[noreturn]] void end_process(int code);

}  // namespace npu_train
