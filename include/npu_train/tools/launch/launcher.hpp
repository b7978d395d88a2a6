/// Starts the ranks of a run on this host, watches them, and reports how they ended.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace npu_train {

/// What to start, and how long to wait for it.
struct LaunchOptions {
  std::vector<std::string> command{};          ///< the program, which is searched in PATH, and its arguments
  std::vector<std::string> restart_command{};  ///< the same after a restart; empty: `command`
  int nproc = 2;                               ///< number of ranks, 1 to kMaxRanks
  int max_restarts = 0;                        ///< how often all ranks are started again after a failure
  int min_nproc = 0;  ///< above 0: a restart leaves out at least as many ranks as failed, but keeps at least this number, and a number
                      ///< that divides `nproc`, by which the program keeps its global batch; 0: it keeps all
  std::chrono::milliseconds grace = std::chrono::seconds(60);       ///< from the first failure until the other ranks get SIGTERM
  std::chrono::milliseconds kill_after = std::chrono::seconds(10);  ///< from there until SIGKILL

  static constexpr int kMaxRanks = 1024;
};

/// How the run ended.
struct LaunchResult {
  int exit_code = 0;      ///< for the program
  std::string message{};  ///< names rank, host and cause of a failure; "" after success and after a stop by a signal
  bool hung = false;      ///< every rank that failed had lost another one, and that one did not end
};

/// Runs `command` as ranks 0 to nproc - 1, with the variables that torchrun sets, and returns when all have ended. To be called from a
/// process of one thread, before anything of a device is initialised: a child serves the store (serve_store()).
///
/// Each rank is a process group of its own, reads nothing from stdin, and shares stdout and stderr. The first SIGINT, SIGTERM, SIGHUP
/// (unless ignored), SIGUSR1, SIGUSR2 or SIGXCPU is passed on to every rank once; a SIGINT or SIGTERM that follows a second or more later
/// kills them. No process is left: ranks and store die with this process, and what a rank started dies with the rank.
///
/// The exit code is 0 if every rank ended with 0, else the first one that is not 9 (another rank failed). A rank that died by a signal
/// which was not sent from here counts as 9. A rank that is stopped when another one fails is killed. A restart follows a failure that
/// another attempt may not repeat: not a usage error (2), a divergence (5), a failed check (7), or a stop by a signal. The variable
/// NPU_TRAIN_FIRST_WORLD_SIZE has the number of ranks of the first start.
///
/// Error(Usage) for options out of range and a program that cannot be run; Error(Device) if the system provides no process or socket.
LaunchResult launch_ranks(const LaunchOptions& options);

}  // namespace npu_train
