// Common parts of the programs, without libtorch: exit codes of errors, signals, the console.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/log.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train::cli {

/// Runs `body` and returns its exit code. An exception is translated to an Error; its message is printed to stderr and its exit code
/// returned. Failed output is an error, too (see written()).
int guarded(const std::function<int()>& body);

/// Returns `code`, or 6 with a message on stderr if stdout could not be written completely (a full disk, a closed pipe).
int written(int code);

/// Returns the number of columns of the terminal on stdout; 0 if stdout is not a terminal.
size_t terminal_columns();

/// Called while work is in progress: `done` of `total` pieces are done.
using WorkProgress = std::function<void(int64_t done, int64_t total)>;
/// Returns a function that shows the progress and the remaining time in one line on stderr, or nothing if stderr is not a terminal. The
/// line is removed with the last copy of the function. `what` names the pieces: "images".
WorkProgress progress_on_stderr(const std::string& what);

/// Opens /dev/null for each closed descriptor from 0 to 2, because the next opened file would become stdout or stderr. Call it first in
/// main().
void open_standard_descriptors();

/// Disables stdout on ranks other than 0, since all ranks report the same. Call it before any output.
void leave_stdout_to_main_rank();

/// On a rank, raises the limit of open files to the hard limit: connections to hundreds of other ranks exceed the usual 1,024.
void raise_descriptor_limit();

/// Returns a sink that logs to stderr; on ranks other than 0, only warnings and errors, prefixed with the rank.
LogSink make_program_sink();

/// Calls `stop` (async-signal-safe) at the first signal by which users, terminals and schedulers end a program: SIGINT, SIGTERM, SIGHUP
/// (unless it is ignored, as under nohup), SIGUSR1, SIGUSR2, SIGXCPU, and SIGPIPE, which follows a write to a stdout or stderr without a
/// reader. A second SIGINT or SIGTERM, a second or more later, ends the program at once. signal_received() returns the number of the first
/// signal, or 0.
void on_stop_signal(void (*stop)());
int signal_received();

/// The arguments CONFIG key=value ... of a command line. A configuration that does not exist at the given path is looked up in
/// share/npu_train of the installation that contains this program.
struct ConfigWords {
  std::string file;  ///< "": not given
  std::vector<std::string> overrides;
};

/// Error(Usage) if there are two configurations.
ConfigWords split_words(const std::vector<std::string>& words);

/// Prints one JSON document, or the text for people, wrapped to the width of the terminal.
void print(bool json, const Json& document, const std::string& text);

/// Writes the page of a report to `html` unless that is "", and prints the report: as a JSON document, or as text with at most `rows` rows
/// of long tables.
void show(const Report& report, bool json, const std::string& html = "", std::optional<size_t> rows = {});

/// Error(Checkpoint) if one of the files cannot be written, Error(Usage) if it would be inside a checkpoint. Call it before the work that
/// produces their contents. "" means no file.
void check_writable(const std::vector<std::string>& files);

}  // namespace npu_train::cli
