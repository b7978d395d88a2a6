// Signals that a launcher receives while it waits.
#pragma once

#include <chrono>
#include <csignal>
#include <string>

namespace npu_train {

using Clock = std::chrono::steady_clock;

/// Whether users, terminals and schedulers end a program with this signal.
bool is_stop_signal(int number);

/// Returns the text of a signal: "signal 9 (SIGKILL)".
std::string signal_text(int number);

/// During its lifetime, blocks SIGPIPE, SIGCHLD and the signals that stop a program, so that only wait() receives them. Use it only in a
/// single-threaded process.
class SignalWait {
 public:
  SignalWait();
  ~SignalWait();
  SignalWait(const SignalWait&) = delete;
  SignalWait& operator=(const SignalWait&) = delete;

  /// Returns the number of the next signal; 0 after `deadline`.
  int wait(Clock::time_point deadline) const;

  /// Restores the previous signal handling. Call it in a child process.
  void restore() const;

 private:
  sigset_t waited_{}, before_{};
  struct sigaction child_before_ {};
};

}  // namespace npu_train
