// What both programs share: errors to exit codes, signals, the console.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/core/log.hpp"
#include "npu_train/engine/parts.hpp"

namespace npu_train::cli {

/// Runs `body` and returns the exit code: its own, that of an Error (its message goes to stderr), or 1. Output that could not be written
/// is an error too (written()).
int guarded(const std::function<int()>& body);

/// `code`, or 6 with a message on stderr if not all output could be written to stdout (a full disk, a closed pipe).
int written(int code);

/// The exit code after an exception of CLI11: 0 for help, which goes to stdout, else 2 with its message on stderr. For a key of a
/// configuration that is given with dashes, the correct form is shown (optimizer.lr=3).
int parse_end(const CLI::App& app, const CLI::ParseError& end, int argc, char** argv, const Parts& parts);

/// Columns of the terminal to which stdout is connected; 0 if it is not a terminal.
size_t terminal_columns();

/// Opens /dev/null for each of the descriptors 0 to 2 that is closed; otherwise the next file that is opened becomes stdout or stderr. Call
/// it first in main().
void open_standard_descriptors();

/// A rank other than 0 writes nothing to stdout: what a program reports is the same on every rank. Call it before anything is written.
void leave_stdout_to_main_rank();

/// In a rank, raises the limit of open files to the hard one: connections to hundreds of other ranks exceed the usual 1,024.
void raise_descriptor_limit();

/// The log on stderr; of a rank other than 0 only warnings and errors, which name it.
LogSink make_program_sink();

/// Calls `stop` (async-signal-safe) at the first of the signals with which users, terminals and schedulers end a program: SIGINT, SIGTERM,
/// SIGHUP (unless it is ignored, as under nohup), SIGUSR1, SIGUSR2, SIGXCPU, and SIGPIPE, which comes from writing to a stdout or stderr
/// that has no reader any more. A second SIGINT or SIGTERM, one second or more later, ends the program at once. signal_received() is 0 or
/// the number of the first signal.
void on_stop_signal(void (*stop)());
int signal_received();

/// Version, libtorch, backends.
std::string version_text();

/// The arguments CONFIG key=value ... of a command line. If the configuration does not exist at the given path, it is searched under the
/// share/npu_train of the installation that this program belongs to.
struct ConfigWords {
  std::string file;  ///< "" when none is given
  std::vector<std::string> overrides;
};

/// Error(Usage) for two configurations.
ConfigWords split_words(const std::vector<std::string>& words);

}  // namespace npu_train::cli
