#include "tools/launch/rank_processes.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kRanks = "launch";

/// Whether a child has ended. It remains a zombie, so that no other process group can get its number until it is waited for.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
}

bool is_stopped(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
}

Variables variables_of(int rank, const Generation& generation) {
  const auto number = std::to_string(rank), ranks = std::to_string(generation.nproc);
  auto out = generation.variables;
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) out[name] = number;
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) out[name] = ranks;
  return out;
}

[[noreturn]] void become_rank(const Generation& generation, int rank, int report) {
  std::signal(SIGTTOU, SIG_IGN);  // lets a background process group write to a terminal even under stty tostop
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  for (const auto& [name, value] : variables_of(rank, generation)) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const auto& word : generation.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  const int error = errno;
  [[maybe_unused]] const auto reported = ::write(report, &error, sizeof error);
  ::_exit(127);
}

pid_t start_rank(const Generation& generation, int rank, int report, const SignalWait& signals) {
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    begin_child(parent, signals);
    become_rank(generation, rank, report);
  }
  check(child > 0, ErrorKind::Device, kRanks, "rank ", rank, " of ", generation.nproc, " could not be started: ", std::strerror(errno),
        "; hint: start fewer ranks, or raise the limit of processes (ulimit -u)");
  ::setpgid(child, child);  // the child calls it, too, so that the group exists whichever of the two runs first
  return child;
}

}  // namespace

void begin_child(pid_t parent, const SignalWait& signals) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(static_cast<int>(ErrorKind::Peer));  // the parent died before the line above
  signals.restore();
}

RankEnd end_of_status(int rank, int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.rank = rank, .signalled = true, .status = WTERMSIG(wait_status)};
  return {.rank = rank, .signalled = false, .status = WEXITSTATUS(wait_status)};
}

RankProcesses::RankProcesses(const Generation& generation, const SignalWait& signals) : program_(generation.command[0]) {
  check(::pipe2(reports_.data(), O_CLOEXEC | O_NONBLOCK) == 0, ErrorKind::Device, kRanks, "no pipe: ", std::strerror(errno));
  try {
    for (int rank = 0; rank < generation.nproc; ++rank) running_[rank] = start_rank(generation, rank, reports_[1], signals);
  } catch (...) {
    kill_all();
    for (const int end : reports_) ::close(end);
    throw;
  }
}

RankProcesses::~RankProcesses() {
  send(SIGKILL);
  for (const int end : reports_) ::close(end);
}

void RankProcesses::kill_all() {
  send(SIGKILL);
  for (const auto& [rank, child] : running_) ::waitpid(child, nullptr, 0);
  running_.clear();
}

void RankProcesses::send(int signal) const {
  for (const auto& [rank, group] : running_) ::kill(-group, signal);
}

std::vector<int> RankProcesses::kill_stopped() const {
  std::vector<int> out;
  for (const auto& [rank, child] : running_) {
    if (!is_stopped(child)) continue;
    ::kill(-child, SIGKILL);
    out.push_back(rank);
  }
  return out;
}

std::optional<RankEnd> RankProcesses::ended() {
  for (const auto& [rank, child] : running_) {
    if (!has_ended(child)) continue;
    ::kill(-child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    const auto end = end_of_status(rank, status);
    running_.erase(rank);
    if (int exec_error = 0; ::read(reports_[0], &exec_error, sizeof exec_error) == sizeof exec_error) {
      kill_all();
      throw Error(ErrorKind::Usage, kRanks, "'" + program_ + "' cannot be run: " + std::strerror(exec_error),
                  "give a program of PATH, or the path of a program");
    }
    return end;
  }
  return std::nullopt;
}

}  // namespace npu_train
