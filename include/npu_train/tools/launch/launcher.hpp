/// Starts the ranks of a run on this host, watches them, and reports how they ended.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace npu_train {

/// The program, the number of its processes, and timeouts.
struct LaunchOptions {
  std::vector<std::string> command{};          ///< the program, which is searched in PATH, and its arguments
  std::vector<std::string> restart_command{};  ///< the command for restarts; empty: `command`
  int nproc = 2;                               ///< number of ranks, 1 to kMaxRanks
  int max_restarts = 0;                        ///< number of times that all ranks are restarted after a failure
  /// 0: a restart keeps all ranks. Above 0: a restart omits as many ranks as failed, or more, so that the number of remaining ranks divides
  /// `nproc` and the program can keep its global batch. If fewer than `min_nproc` would remain, it starts `min_nproc`, or does not restart
  /// if that number does not divide `nproc`.
  int min_nproc = 0;
  std::chrono::milliseconds grace = std::chrono::seconds(60);       ///< time from the first failure until the other ranks get SIGTERM
  std::chrono::milliseconds kill_after = std::chrono::seconds(10);  ///< time from SIGTERM until SIGKILL

  static constexpr int kMaxRanks = 1024;
};

/// The end of a run.
struct LaunchResult {
  int exit_code = 0;      ///< exit code that the calling program should return
  std::string message{};  ///< names the rank, the host and the cause of a failure; "" after success and after a stop by a signal
  bool hung = false;      ///< ranks failed only because they had lost another rank, which did not end by itself
};

/// Runs `command` as ranks 0 to nproc - 1 with the variables of torchrun, and returns when all have ended. Call it from a single-threaded
/// process, before a device is initialised: a child process serves the store (serve_store()).
///
/// Each rank has its own process group, reads an empty stdin, and shares stdout and stderr. The first SIGINT, SIGTERM, SIGHUP (unless
/// ignored), SIGUSR1, SIGUSR2 or SIGXCPU is forwarded to every rank once; a SIGINT or SIGTERM a second or more later kills them. No process
/// remains: ranks and store die with this process, and processes that a rank started die with the rank.
///
/// The exit code is 0 if every rank ended with 0, otherwise the first exit code other than 9 (9: another rank failed). A rank that died by
/// a signal that this process did not send counts as 9. A rank that is stopped (SIGSTOP) when another one fails is killed. After a failure
/// the ranks are restarted if another attempt may succeed, which excludes a usage error (2), a divergence (5), a failed check (7) and a
/// stop by a signal. The variable NPU_TRAIN_FIRST_WORLD_SIZE is the number of ranks of the first start.
///
/// Error(Usage) for options out of range and a program that cannot be run; Error(Device) if the system provides no process or socket.
LaunchResult launch_ranks(const LaunchOptions& options);

}  // namespace npu_train
