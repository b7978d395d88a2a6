#include "tools/launch/signals.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace npu_train {
namespace {

constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

constexpr std::array<std::pair<int, const char*>, 15> kNames = {{{SIGHUP, "SIGHUP"},
                                                                 {SIGINT, "SIGINT"},
                                                                 {SIGQUIT, "SIGQUIT"},
                                                                 {SIGILL, "SIGILL"},
                                                                 {SIGTRAP, "SIGTRAP"},
                                                                 {SIGABRT, "SIGABRT"},
                                                                 {SIGBUS, "SIGBUS"},
                                                                 {SIGFPE, "SIGFPE"},
                                                                 {SIGKILL, "SIGKILL"},
                                                                 {SIGUSR1, "SIGUSR1"},
                                                                 {SIGSEGV, "SIGSEGV"},
                                                                 {SIGUSR2, "SIGUSR2"},
                                                                 {SIGPIPE, "SIGPIPE"},
                                                                 {SIGTERM, "SIGTERM"},
                                                                 {SIGXCPU, "SIGXCPU"}}};

bool is_ignored(int number) {
  struct sigaction action {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

bool is_stop_signal(int number) { return std::find(kStopSignals.begin(), kStopSignals.end(), number) != kStopSignals.end(); }

std::string signal_text(int number) {
  const auto named = std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.first == number; });
  return "signal " + std::to_string(number) + (named == kNames.end() ? "" : std::string(" (") + named->second + ")");
}

SignalWait::SignalWait() {
  ::sigemptyset(&waited_);
  for (const int number : kStopSignals)
    if (number != SIGHUP || !is_ignored(number)) ::sigaddset(&waited_, number);  // nohup ignores SIGHUP
  ::sigaddset(&waited_, SIGCHLD);
  ::sigaddset(&waited_, SIGPIPE);  // a closed stderr must not end the launcher
  ::sigprocmask(SIG_BLOCK, &waited_, &before_);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;  // if a parent ignored SIGCHLD, children could not be waited for
  ::sigaction(SIGCHLD, &action, &child_before_);
}

SignalWait::~SignalWait() { restore(); }

void SignalWait::restore() const {
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int SignalWait::wait(Clock::time_point deadline) const {
  while (true) {
    // A wait without a deadline is a series of waits of one hour.
    const auto left = std::clamp(deadline - Clock::now(), Clock::duration::zero(), Clock::duration(std::chrono::hours(1)));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec time{static_cast<time_t>(seconds.count()),
                        static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count())};
    const int number = ::sigtimedwait(&waited_, nullptr, &time);
    if (number > 0) return number;
    if (errno == EAGAIN && Clock::now() >= deadline) return 0;
  }
}

}  // namespace npu_train
