/// The gain of each usual step towards faster training of a large model: a table of stages, measured by real trainings with several ranks.
/// Each stage adds something to the one before.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train {

/// One stage: its additions to the configuration of the previous stage, and the measurements of its trainings.
struct Stage {
  std::string name{};
  std::vector<std::string> settings{};  ///< key=value; empty: this model has no such setting, and the stage is not trained
  std::vector<BenchRow> runs{};         ///< one per seed: the row of section "stages" that rank 0 reported
  std::string failure{};                ///< the reason if there is no run
};

/// Returns the stages: baseline (ddp, 32-true, PyTorch's operators), sharding (zero2), mixed precision (the configuration's if it is mixed,
/// otherwise bf16-mixed), fusion (model.fused_kernels) and communication (dist.preset=communication; with up to 8 ranks, its groups are
/// halves of `ranks`). Other `dist` values of the configuration apply to all stages.
std::vector<Stage> training_stages(const RunConfig& config, int ranks, const Parts& parts = builtin_parts());

/// Measured peak speeds of this machine per second, to which the table's shares refer.
struct MachineSpeed {
  double products = 0;      ///< FLOPs of matrix products in fp32
  double low_products = 0;  ///< FLOPs of products in the precision of the later stages
  double copies = 0;        ///< bytes, read plus written
  int devices = 1;          ///< devices that the ranks share; ranks on CPUs share one
};

/// Adds a row of section "stages" for each stage, with
///
///   step_ms_median, speedup                              of the fastest seed; speedup relative to the first stage
///   memory_bytes                                         largest increase over all ranks and seeds, relative to the start
///   share_communication, share_exposed                   shares of a step: communication (gradients, parameters); waiting for it
///   share_of_products, share_of_copies, share_of_link    speed relative to the measured peak
///   diverged, seeds                                      trainings whose final loss is not finite or over twice the first; all trainings
///   loss, loss_low, loss_high                            mean of the last ten steps, over the seeds that did not diverge
///
/// A share above kMostOfAll is doubtful, and a note names its likely cause.
void add_stages(BenchReport& report, const std::vector<Stage>& stages, const MachineSpeed& machine);

/// Limit of a share of the machine's measured speed; a larger share cannot be right.
inline constexpr double kMostOfAll = 1.05;

/// A stage that others published, measured on another machine (src/tools/bench/facts/stages.tsv). NaN: not published.
struct PublishedStage {
  std::string name{}, stability{};
  double seconds_per_step = 0, memory_gb = 0, communication_percent = 0;
  double compute_percent = 0, memory_percent = 0, link_percent = 0;
};
std::vector<PublishedStage> published_stages();
/// Returns the machine, the model and the publisher of published_stages().
std::string published_stages_of();

}  // namespace npu_train
