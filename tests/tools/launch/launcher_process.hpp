// Runs a launcher as a separate process, and finds the processes that it leaves behind.
#pragma once

#include "testing.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <sys/types.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "happens.hpp"
#include "npu_train/tools/launch/launcher.hpp"

namespace npu_train::testing {

inline std::string content_of(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

inline pid_t pid_in(const std::filesystem::path& file) { return static_cast<pid_t>(std::stol("0" + content_of(file))); }

/// Returns the processes whose parent is `parent`.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto stat = content_of(entry.path() / "stat");
    const auto end_of_name = stat.rfind(')');
    if (end_of_name == std::string::npos) continue;
    std::istringstream fields(stat.substr(end_of_name + 1));
    std::string state;
    pid_t its_parent = 0;
    if (fields >> state >> its_parent && its_parent == parent) out.push_back(static_cast<pid_t>(std::stol(stat)));
  }
  return out;
}

/// Runs launch_ranks() in a child, as train_app does. Processes that the child leaves behind become children of the test. In the child,
/// signals have their default action, whatever the test inherits: nohup ignores SIGHUP, and a script ignores SIGINT in commands that it
/// starts with `&`.
class LauncherProcess {
 public:
  explicit LauncherProcess(
      const LaunchOptions& options, const std::function<void()>& prepare = [] {}) {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    REQUIRE(::pipe2(pipe_.data(), O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGPIPE, SIGCHLD}) std::signal(number, SIG_DFL);
      sigset_t none;
      ::sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      prepare();
      run(options);
    }
    ::close(pipe_[1]);
  }
  ~LauncherProcess() {
    ::kill(pid_, SIGKILL);
    ::close(pipe_[0]);
    while (::waitpid(-1, nullptr, WNOHANG) >= 0)  // until no child is left
      for (const pid_t child : children_of(::getpid())) ::kill(child, SIGKILL);
  }
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }

  /// Returns whether the launcher has ended, or has reported its result.
  bool has_result() const {
    pollfd ready{pipe_[0], POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  }

  /// Waits for the launcher's end. An Error is returned as its text, with its exit code plus 1000.
  LaunchResult result() {
    std::string text;
    std::array<char, 4096> part{};
    pollfd ready{pipe_[0], POLLIN, 0};
    while (true) {
      REQUIRE_MESSAGE(::poll(&ready, 1, 300'000) == 1, "the launcher does not end");
      const auto got = ::read(pipe_[0], part.data(), part.size());
      if (got <= 0) break;
      text.append(part.data(), static_cast<size_t>(got));
    }
    const auto line = text.find('\n');
    REQUIRE_MESSAGE(line != std::string::npos, "the launcher died");
    return {std::stoi(text), text.substr(line + 1)};
  }

  /// Returns whether the launcher and every process that it started are gone.
  bool nothing_is_left() {
    return happens([&] {
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, WNOHANG);
      if (ended > 0 && ended != pid_) adopted_.push_back(status);
      return ended < 0;
    });
  }
  /// Returns how the processes that the launcher left behind ended; valid after nothing_is_left().
  const std::vector<int>& adopted() const { return adopted_; }

 private:
  [[noreturn]] void run(const LaunchOptions& options) const {
    LaunchResult result;
    try {
      result = launch_ranks(options);
    } catch (const Error& e) {
      result = {1000 + e.exit_code(), e.what()};
    }
    const auto text = std::to_string(result.exit_code) + "\n" + result.message;
    ::_exit(::write(pipe_[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }

  std::array<int, 2> pipe_{};
  pid_t pid_ = -1;
  std::vector<int> adopted_;
};

}  // namespace npu_train::testing
