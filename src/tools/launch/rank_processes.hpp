// Starts, signals and ends the processes of the ranks.
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

/// Prepares a new child process: it becomes the leader of a process group, is killed when its parent dies, and gets the signal handling
/// from before `signals`.
void begin_child(pid_t parent, const SignalWait& signals);

/// Converts the status of waitpid().
RankEnd end_of_status(int rank, int wait_status);

/// Common properties of all ranks of a generation.
struct Generation {
  std::vector<std::string> command;
  int nproc = 1;
  Variables variables;  ///< the same for every rank
};

/// The ranks of one generation. The destructor kills those that still run.
class RankProcesses {
 public:
  /// Starts the ranks without waiting until their program runs.
  RankProcesses(const Generation& generation, const SignalWait& signals);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  int running() const { return static_cast<int>(running_.size()); }
  /// Sends the signal to each process of the running ranks.
  void send(int signal) const;
  /// Kills the ranks that are stopped (for example by SIGSTOP), which cannot end by themselves, and returns their numbers.
  std::vector<int> kill_stopped() const;
  /// Returns the end of a rank that has ended and was not returned yet, after killing all processes that this rank started; nullopt if
  /// there is no such rank. Error(Usage) if the program cannot be run; no rank remains in that case.
  std::optional<RankEnd> ended();

 private:
  void kill_all();

  std::string program_;
  std::array<int, 2> reports_{-1, -1};  // pipe for the errors of exec
  std::map<int, pid_t> running_;        // by rank
};

}  // namespace npu_train
