// What both programs share: errors to exit codes, signals, the console.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace npu_train::cli {

/// Runs `body` and gives the exit code: its own, that of an Error (its message goes to stderr), or 1.
int guarded(const std::function<int()>& body);

/// Calls `stop` (async-signal-safe) at the first SIGINT or SIGTERM; a second one ends the program at once. signal_received() is 0 or the
/// number of the signal.
void on_stop_signal(void (*stop)());
int signal_received();

/// Version, libtorch, backends.
std::string version_text();

/// The words CONFIG key=value ... of a command line. A configuration that does not exist as typed is looked for under the share/npu_train
/// of the installation that this program belongs to.
struct ConfigWords {
  std::string file;  ///< "" when none is given
  std::vector<std::string> overrides;
};

/// Error(Usage) for two configurations.
ConfigWords split_words(const std::vector<std::string>& words);

}  // namespace npu_train::cli
