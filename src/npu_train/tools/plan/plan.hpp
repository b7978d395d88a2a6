/// Plans a training with several ranks: step time, memory per rank and the best strategy for each number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/plan/measured.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

struct PlanOptions {
  std::vector<int> ranks{};
  Cluster cluster{};
  int64_t memory = 0;                    ///< bytes per device; 0: no limit
  StepRates rates{};                     ///< used if there are no measured steps
  double one_rank_seconds = 0;           ///< measured seconds of a step of one process, from which rates.flops follows; 0: not given
  std::vector<MeasuredStep> measured{};  ///< steps to which the rates are fitted
  bool with_memory = true;               ///< also predict the memory of a rank; this runs some steps of the model
};

/// One row of the plan.
struct PlannedStep {
  Placement placement{};
  StepTime time{};
  double samples_per_second = 0;
  double efficiency = 1;  ///< throughput per rank, relative to one rank alone
  int64_t memory = 0;     ///< bytes per rank; 0: not predicted
  bool fits = true;
  bool is_best = false;  ///< has the shortest step among the rows with this number of ranks that fit
  std::string beyond{};  ///< beyond_measured() of this row
};

struct Plan {
  std::string model{};
  StepWork work{};
  Cluster cluster{};
  StepRates rates{};
  int64_t memory_limit = 0;
  std::vector<PlannedStep> steps{};  ///< by number of ranks; one per strategy, with its best shard and group sizes
  std::optional<StepFit> fit{};
  std::vector<std::string> notes{};

  const PlannedStep* best(int ranks) const;  ///< nullptr if none fits
};

/// Returns the work of a step of the configuration. Builds the model; reads no data and writes no file.
StepWork step_work(const RunConfig& config, const Parts& parts = builtin_parts());

/// Returns the bytes that a rank needs with a placement.
using MemoryOfRank = std::function<int64_t(const Placement&)>;

/// Compares the strategies for each number of ranks, with several shard sizes and, unless `work.dist` sets one, several group sizes.
/// `memory` may be empty.
Plan plan_steps(const StepWork& work, const PlanOptions& options, const MemoryOfRank& memory = {});

/// Like plan_steps(), for a configured run, with memory from predict_memory(). Error(Usage) for numbers of ranks outside 1 to 65536.
Plan plan_run(const RunConfig& config, const PlanOptions& options, const Parts& parts = builtin_parts());

Report report_of(const Plan& plan);

}  // namespace npu_train
