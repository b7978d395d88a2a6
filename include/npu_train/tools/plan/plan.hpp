/// Plans a training of many ranks: for each number of ranks the time of a step, the memory of a rank, and the best strategy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/plan/measured.hpp"

namespace npu_train {

struct PlanOptions {
  std::vector<int> ranks{};
  Cluster cluster{};
  int64_t memory = 0;                    ///< bytes of a device; 0: no limit
  StepRates rates{};                     ///< without measured steps
  double one_rank_seconds = 0;           ///< of a measured step of one process, from which rates.flops follows; 0: not given
  std::vector<MeasuredStep> measured{};  ///< to which rates are fitted
  bool with_memory = true;               ///< the memory of a rank is predicted, which takes some steps of the model
};

/// One row.
struct PlannedStep {
  Placement placement{};
  StepTime time{};
  double samples_per_second = 0;
  double efficiency = 1;  ///< of this many ranks without others
  int64_t memory = 0;     ///< bytes of a rank; 0: not predicted
  bool fits = true;
  bool is_best = false;  ///< the shortest step of those that fit, for its number of ranks
  std::string beyond{};  ///< in what it is an extrapolation: beyond_measured()
};

struct Plan {
  std::string model{};
  StepWork work{};
  Cluster cluster{};
  StepRates rates{};
  int64_t memory_limit = 0;
  std::vector<PlannedStep> steps{};  ///< by number of ranks; of each strategy with its best sizes of shards and groups
  std::optional<StepFit> fit{};
  std::vector<std::string> notes{};

  const PlannedStep* best(int ranks) const;  ///< nullptr if none fits
};

/// The work of a step of the configuration. Builds the model; reads no data and writes nothing.
StepWork step_work(const RunConfig& config, const Parts& parts = builtin_parts());

/// The bytes of a rank by placement.
using MemoryOfRank = std::function<int64_t(const Placement&)>;

/// Compares the strategies for each number of ranks, with sizes of shards and, unless `work.dist` has one, of groups. `memory` may be
/// empty.
Plan plan_steps(const StepWork& work, const PlanOptions& options, const MemoryOfRank& memory = {});

/// The same for a configured run, with the memory that predict_memory gives. Error(Usage) for numbers of ranks out of 1 to 65536.
Plan plan_run(const RunConfig& config, const PlanOptions& options, const Parts& parts = builtin_parts());

std::string to_text(const Plan& plan, size_t width = 0);
Json to_json(const Plan& plan);

}  // namespace npu_train
