// The signals that a launcher receives while it waits.
#pragma once

#include <chrono>
#include <csignal>
#include <string>

namespace npu_train {

using Clock = std::chrono::steady_clock;

/// A signal by which users, terminals and schedulers end a program.
bool is_stop_signal(int number);

/// "signal 9 (SIGKILL)".
std::string signal_text(int number);

/// While it lives, the signals that stop a program, SIGPIPE and SIGCHLD are delivered to wait() alone. For a process of one thread.
class SignalWait {
 public:
  SignalWait();
  ~SignalWait();
  SignalWait(const SignalWait&) = delete;
  SignalWait& operator=(const SignalWait&) = delete;

  /// The number of the next signal, or 0 after `deadline`.
  int wait(Clock::time_point deadline) const;

  /// For a child process: signals as they were before.
  void restore() const;

 private:
  sigset_t waited_{}, before_{};
  struct sigaction child_before_ {};
};

}  // namespace npu_train
