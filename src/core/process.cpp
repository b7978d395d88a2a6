// Runs other programs. Between fork and exec, only calls that are safe in multithreaded processes are allowed.
#include "npu_train/core/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace npu_train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNotFound = 127, kNotStarted = 126;  // the exit codes that shells use

struct Pipe {
  Pipe() {
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) ends = {-1, -1};
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool good() const { return ends[0] >= 0; }
  void close_end(size_t i) {
    if (ends[i] >= 0) ::close(ends[i]);
    ends[i] = -1;
  }
  std::array<int, 2> ends{-1, -1};
};

[[noreturn]] void become(char* const* words, int out, const CommandOptions& options) {
  if (options.deadline) ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  if (options.max_file_bytes) {
    const rlimit largest{*options.max_file_bytes, *options.max_file_bytes};
    if (::setrlimit(RLIMIT_FSIZE, &largest) != 0) ::_exit(kNotStarted);
  }
  ::execvp(words[0], words);
  ::_exit(kNotFound);
}

// Reads until the other end is closed. Returns false if the deadline passes.
bool read_all(int fd, Clock::time_point deadline, size_t max_output, std::string& out) {
  std::array<char, 65536> block;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    if (ready < 0) return true;
    const ssize_t got = ::read(fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    out.append(block.data(), std::min(static_cast<size_t>(got), max_output - std::min(max_output, out.size())));
  }
}

// Waits for the process to end; false if the deadline passes.
bool reap(pid_t child, Clock::time_point deadline, int& status) {
  while (true) {
    const pid_t done = ::waitpid(child, &status, WNOHANG);
    if (done == child || (done < 0 && errno != EINTR)) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options) {
  CommandResult result;
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Pipe pipe;
  if (words.empty() || !pipe.good()) return result;
  const auto end = options.deadline ? Clock::now() + *options.deadline : Clock::time_point::max();
  const pid_t child = ::fork();
  if (child < 0) return result;
  if (child == 0) become(arguments.data(), pipe.ends[1], options);
  if (options.deadline) ::setpgid(child, child);  // parent and child both try; the first one succeeds
  pipe.close_end(1);
  int status = 0;
  const bool in_time = read_all(pipe.ends[0], end, options.max_output, result.output) && reap(child, end, status);
  if (!in_time) {
    ::kill(-child, SIGKILL);
    // A process that hangs in its driver cannot be killed, so it is abandoned.
    reap(child, Clock::now() + std::chrono::seconds(1), status);
    result.end = CommandResult::End::TimedOut;
    return result;
  }
  if (WIFSIGNALED(status)) {
    result.end = CommandResult::End::Signalled;
    result.status = WTERMSIG(status);
    return result;
  }
  result.status = WEXITSTATUS(status);
  result.end = result.status == kNotFound && result.output.empty() ? CommandResult::End::NotFound : CommandResult::End::Exited;
  return result;
}

void end_process(int code) {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(nullptr);
  std::quick_exit(code);
}

}  // namespace npu_train
