/// The time of a training step of several ranks: its computation, and its collectives by the alpha-beta model (a time for each message and
/// one for each byte: Hockney 1994; Thakur et al. 2005), overlapped as GradientReducer overlaps them.
#pragma once

#include "npu_train/tools/plan/quantities.hpp"
#include "npu_train/tools/plan/step_calls.hpp"

namespace npu_train {

/// What the ranks run on.
struct Cluster {
  LinkSpeed link{};     ///< of a rank to ranks of other machines
  LinkSpeed local{};    ///< to ranks of its machine; 0 bytes per second: as `link`
  int per_machine = 1;  ///< ranks
  double load = 0;      ///< busy threads of all ranks of a machine for each of its cores; 0: each rank has a device of its own
};

/// How fast it runs: numbers that can be fitted to measured steps.
struct StepRates {
  double flops = 1e12;      ///< per second, of forward and backward passes
  double memory = 1e12;     ///< bytes per second of what copies and adds gradients, and of the optimizer
  double link_share = 0.9;  ///< of a link's bandwidth that collectives reach
  double message = 0;       ///< seconds for each message, in addition to the link's latency
  double contention = 0;    ///< the time of computation grows by this share when all cores of a machine are busy
  double carrying = 0;      ///< seconds of computation for each byte that a rank sends, when all cores are busy
};

struct StepTime {
  double seconds = 0;        ///< of the step
  double compute = 0;        ///< of it without waiting for other ranks
  double communication = 0;  ///< while something travels, hidden or not
  double sent_bytes = 0;     ///< by each rank, without agreements; with groups by the first rank of one
  double between_bytes = 0;  ///< of them, with groups: to first ranks of other groups

  /// Share of the step in which a rank waits for others.
  double waiting() const { return seconds > 0 ? (seconds - compute) / seconds : 0; }
};

/// Seconds of one collective.
double call_seconds(const StepCall& call, const Placement& placement, const Cluster& cluster, const StepRates& rates, bool between_devices);

StepTime step_time(const StepWork& work, const Placement& placement, const Cluster& cluster, const StepRates& rates);
/// The same with calls that are known.
StepTime step_time(const StepWork& work, const Placement& placement, const StepCalls& calls, const Cluster& cluster,
                   const StepRates& rates);

}  // namespace npu_train
