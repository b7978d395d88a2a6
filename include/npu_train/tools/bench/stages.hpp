/// What each of the usual steps towards faster training of a large model buys: a table of stages, each on top of the one before, from real
/// trainings of several ranks.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/bench/bench_report.hpp"

namespace npu_train {

/// One stage: what it adds to the configuration of the stage before, and what its trainings measured.
struct Stage {
  std::string name{};
  std::vector<std::string> settings{};  ///< key=value; empty: the model has nothing to add here, and the stage is not trained
  std::vector<BenchRow> runs{};         ///< one for each seed: the row of section "stages" that rank 0 reported
  std::string failure{};                ///< why there is no run
};

/// baseline (ddp, 32-true, PyTorch's operators), sharding (zero2), mixed precision (the configuration's if it is a mixed one, else
/// bf16-mixed), fusion (model.fused_kernels) and communication (dist.preset=communication, whose groups of 8 ranks are halves of `ranks`
/// where there are not more than 8). Other values of `dist` that the configuration gives stay in all stages.
std::vector<Stage> training_stages(const RunConfig& config, int ranks, const Parts& parts = builtin_parts());

/// What this machine reaches alone, per second: the scale of the shares in the table.
struct MachineSpeed {
  double products = 0;      ///< FLOPs of matrix products in fp32
  double low_products = 0;  ///< in the precision of the later stages
  double copies = 0;        ///< bytes, read and written
  int devices = 1;          ///< that the ranks share; ranks on CPUs share one
};

/// A row of section "stages" for each stage, with
///
///   step_ms_median, speedup                              of the fastest seed; speedup relative to the first stage
///   memory_bytes                                         the largest of any rank and seed, above that of the process before
///   share_communication, share_exposed                   of a step: gradients travel or parameters are waited for; the step waits
///   share_of_products, share_of_copies, share_of_link    reached speed relative to the measured one
///   diverged, seeds                                      trainings that ended with a loss that is not finite, or twice the first one
///   loss, loss_low, loss_high                            mean of the last ten steps, over the seeds that did not diverge
///
/// A share above 1.05 is doubtful: a note gives its likely cause.
void add_stages(BenchReport& report, const std::vector<Stage>& stages, const MachineSpeed& machine);

/// Two tables: times and stability, and use of the machine. "" if the report has no stages. `width` as in to_text().
std::string stages_text(const BenchReport& report, size_t width = 0);

/// A stage that others published, of another machine (src/tools/bench/facts/stages.tsv). NaN: not published.
struct PublishedStage {
  std::string name{}, stability{};
  double seconds_per_step = 0, memory_gb = 0, communication_percent = 0;
  double compute_percent = 0, memory_percent = 0, link_percent = 0;
};
std::vector<PublishedStage> published_stages();
/// The machine and model of published_stages(), and who published them.
std::string published_stages_of();

}  // namespace npu_train
