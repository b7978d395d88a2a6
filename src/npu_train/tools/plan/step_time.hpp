/// Predicts the time of a training step with several ranks. The time of a collective follows the alpha-beta model (a time per message and a
/// time per byte: Hockney 1994; Thakur et al. 2005). Collectives overlap with computation as in GradientReducer.
#pragma once

#include "npu_train/tools/plan/quantities.hpp"
#include "npu_train/tools/plan/step_calls.hpp"

namespace npu_train {

/// The hardware of the ranks.
struct Cluster {
  LinkSpeed link{};     ///< link from a rank to ranks of other machines
  LinkSpeed local{};    ///< link from a rank to ranks of its machine; with 0 bytes per second, `link` is used
  int per_machine = 1;  ///< ranks per machine
  double load = 0;      ///< busy threads per core of a machine, over all its ranks; 0: each rank has a device of its own
};

/// Speeds of the hardware; they can be fitted to measured steps.
struct StepRates {
  double flops = 1e12;      ///< operations per second, in forward and backward passes
  double memory = 1e12;     ///< bytes per second of copying and adding gradients, and of the optimizer
  double link_share = 0.9;  ///< share of a link's bandwidth that collectives reach
  double message = 0;       ///< seconds per message, in addition to the link's latency
  double contention = 0;    ///< share by which computation takes longer when all cores of a machine are busy
  double carrying = 0;      ///< seconds of computation per byte that a rank sends, when all cores are busy
};

struct StepTime {
  double seconds = 0;        ///< the complete step
  double compute = 0;        ///< seconds without waiting for other ranks
  double communication = 0;  ///< seconds in which data are in transit, overlapped with computation or not
  double sent_bytes = 0;     ///< bytes that a rank sends (with groups: the first rank of a group), without agreements
  double between_bytes = 0;  ///< part of sent_bytes that first ranks of groups exchange with each other; 0 without groups

  /// Share of the step in which a rank waits for others.
  double waiting() const { return seconds > 0 ? (seconds - compute) / seconds : 0; }
};

/// Returns the seconds of one collective.
double call_seconds(const StepCall& call, const Placement& placement, const Cluster& cluster, const StepRates& rates, bool between_devices);

StepTime step_time(const StepWork& work, const Placement& placement, const Cluster& cluster, const StepRates& rates);
/// Like step_time() above, but uses the result of step_calls(work, placement).
StepTime step_time(const StepWork& work, const Placement& placement, const StepCalls& calls, const Cluster& cluster,
                   const StepRates& rates);

}  // namespace npu_train
