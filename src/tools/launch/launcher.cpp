#include "npu_train/tools/launch/launcher.hpp"

#include <unistd.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "tools/launch/rank_processes.hpp"
#include "tools/launch/signals.hpp"
#include "tools/launch/store_process.hpp"
#include "tools/launch/verdict.hpp"

namespace npu_train {
namespace {

constexpr const char* kLauncher = "launch";

void check_options(const LaunchOptions& o) {
  check(!o.command.empty(), ErrorKind::Usage, kLauncher, "there is no program to run");
  check(o.nproc >= 1 && o.nproc <= LaunchOptions::kMaxRanks, ErrorKind::Usage, kLauncher, "nproc is ", o.nproc, "; allowed: 1 to ",
        LaunchOptions::kMaxRanks);
  check(o.max_restarts >= 0, ErrorKind::Usage, kLauncher, "max_restarts is ", o.max_restarts, "; allowed: 0 or more");
  check(o.min_nproc >= 0 && o.min_nproc <= o.nproc, ErrorKind::Usage, kLauncher, "min_nproc is ", o.min_nproc,
        "; allowed: 0 to nproc, which is ", o.nproc);
}

/// Returns the environment variables of torchrun, so that a program, in C++ or Python, reads the same variables under both launchers.
Variables shared_variables(const LaunchOptions& options, int port, int generation) {
  return {{"NPU_TRAIN_LAUNCHER", "npu_train"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"ROLE_NAME", "default"},
          {"TORCHELASTIC_RUN_ID", "npu_train-" + std::to_string(::getpid())},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(generation)},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
          {"NPU_TRAIN_FIRST_WORLD_SIZE", std::to_string(options.nproc)}};
}

/// Returns the number of ranks after a restart; 0 if no number is possible. It divides the number of ranks of the first start, so that a
/// program can keep its global batch.
int ranks_of_restart(const LaunchOptions& options, int nproc, int lost) {
  if (options.min_nproc == 0) return nproc;
  int ranks = std::max(options.min_nproc, nproc - lost);
  while (ranks >= options.min_nproc && options.nproc % ranks != 0) --ranks;
  return ranks >= options.min_nproc ? ranks : 0;
}

/// Waits for the ranks of a generation.
class Watch {
 public:
  Watch(const LaunchOptions& options, const SignalWait& signals, StoreProcess& store, RankProcesses& ranks)
      : options_(options), signals_(signals), store_(store), ranks_(ranks), verdict_(ranks.running(), host_name()) {}

  Verdict run() {
    while (ranks_.running() > 0 && phase_ != Phase::GivenUp) {
      const int signal = signals_.wait(deadline_);
      if (signal == 0) escalate();
      if (is_stop_signal(signal)) stop(signal);
      while (const auto end = ranks_.ended()) verdict_.add(*end);
      if (const auto end = store_.ended()) verdict_.add_store(*end);
      if (verdict_.lost() > 0) store_.end();  // ranks that are still connecting learn at once that a rank will not come
      if (verdict_.failed())
        for (const int rank : ranks_.kill_stopped()) verdict_.add_stopped(rank);
      if (verdict_.failed() && phase_ == Phase::Running) enter(Phase::Grace, options_.grace);
    }
    return verdict_;
  }

 private:
  enum class Phase { Running, Grace, Terminated, Killed, GivenUp };

  void enter(Phase phase, Clock::duration time) {
    phase_ = phase;
    deadline_ = Clock::now() + time;
  }

  /// Enters the next phase after the time of the current one is over while ranks still run.
  void escalate() {
    if (phase_ == Phase::Grace) {
      log_warning("[launch] ", ranks_.running(), " of the ranks still run ",
                  human_duration(std::chrono::duration<double>(options_.grace).count()), " after another one failed; they are stopped");
      end_ranks(SIGTERM, Phase::Terminated);
    } else if (phase_ == Phase::Terminated) {
      end_ranks(SIGKILL, Phase::Killed);
    } else if (phase_ == Phase::Killed) {  // a process that hangs in a driver cannot be ended
      log_warning("[launch] ", ranks_.running(), " of the ranks do not end after SIGKILL; the launcher does not wait for them");
      phase_ = Phase::GivenUp;
    }
  }

  void end_ranks(int signal, Phase phase) {
    verdict_.ended_by(signal);
    ranks_.send(signal);
    enter(phase, options_.kill_after);
  }

  /// Forwards the first stop signal; a later SIGINT or SIGTERM kills the ranks. A signal within a second after the first one belongs to the
  /// same request, because timeout(1) signals a process and then its group.
  void stop(int signal) {
    if (stopped_at_ == Clock::time_point()) {
      stopped_at_ = Clock::now();
      verdict_.stopped_by(signal);
      ranks_.send(signal);
      ranks_.send(SIGCONT);  // a stopped rank receives the other signal only when it continues
    } else if ((signal == SIGINT || signal == SIGTERM) && Clock::now() - stopped_at_ >= std::chrono::seconds(1)) {
      end_ranks(SIGKILL, Phase::Killed);
    }
  }

  const LaunchOptions& options_;
  const SignalWait& signals_;
  StoreProcess& store_;
  RankProcesses& ranks_;
  Verdict verdict_;
  Phase phase_ = Phase::Running;
  Clock::time_point deadline_ = Clock::time_point::max(), stopped_at_{};
};

}  // namespace

LaunchResult launch_ranks(const LaunchOptions& options) {
  check_options(options);
  const SignalWait signals;
  int nproc = options.nproc;
  for (int generation = 0;; ++generation) {
    StoreProcess store(signals);
    const bool restarted = generation > 0 && !options.restart_command.empty();
    RankProcesses ranks({restarted ? options.restart_command : options.command, nproc, shared_variables(options, store.port(), generation)},
                        signals);
    const auto verdict = Watch(options, signals, store, ranks).run();
    if (generation == options.max_restarts || !verdict.may_restart() || ranks.running() > 0)
      return {verdict.exit_code(), verdict.message(), verdict.hung()};
    const int fewer = ranks_of_restart(options, nproc, verdict.lost());
    if (fewer == 0)
      return {verdict.exit_code(),
              str_cat(verdict.message(), "; no restart: no number of ranks from ", options.min_nproc, " to ", nproc - verdict.lost(),
                      " divides ", options.nproc, ", by which the global batch would stay the same"),
              verdict.hung()};
    nproc = fewer;
    log_warning("[launch] ", verdict.message(), "; restart ", generation + 1, " of ", options.max_restarts, " with ", nproc, " ranks");
  }
}

}  // namespace npu_train
