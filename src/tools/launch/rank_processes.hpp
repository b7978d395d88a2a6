// The processes of the ranks: started, signalled, ended.
#pragma once

#include <sys/types.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/signals.hpp"
#include "tools/launch/verdict.hpp"

namespace npu_train {

using Variables = std::map<std::string, std::string>;

/// Calls in a new child process: it becomes the leader of a process group, dies with its parent, and receives signals again.
void begin_child(pid_t parent, const SignalWait& signals);

/// The end of a child as waitpid() reports it.
RankEnd end_of_status(int rank, int wait_status);

/// What all ranks of a generation share.
struct Generation {
  std::vector<std::string> command;
  int nproc = 1;
  Variables variables;  ///< the same for every rank
};

/// The ranks of one generation. Its destructor kills those that still run.
class RankProcesses {
 public:
  /// Starts them, and does not wait until their program runs.
  RankProcesses(const Generation& generation, const SignalWait& signals);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  int running() const { return static_cast<int>(running_.size()); }
  /// To each process of the ranks that run.
  void send(int signal) const;
  /// Kills the ranks that are stopped (SIGSTOP, for example), which cannot end by themselves, and gives their numbers.
  std::vector<int> kill_stopped() const;
  /// A rank that has ended since the last call, with all that it started; nothing if there is none. Error(Usage) if the program cannot be
  /// run; then none is left.
  std::optional<RankEnd> ended();

 private:
  void kill_all();

  std::string program_;
  std::array<int, 2> reports_{-1, -1};  // a pipe for the errors of exec
  std::map<int, pid_t> running_;        // by rank
};

}  // namespace npu_train
