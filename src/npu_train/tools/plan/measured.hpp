/// Measured steps, and the rates with which the model of step_time.hpp reproduces their times.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/plan/step_time.hpp"

namespace npu_train {

/// One measured step.
struct MeasuredStep {
  Placement placement{};
  LinkSpeed link{};
  std::string link_text{}, options{};  ///< as in the file; `options`: overrides such as "dist.reduction=native", separated by blanks
  int64_t batch = 0;                   ///< samples per micro-batch; 0: as configured
  int64_t micro_batches = 0;           ///< micro-batches per window; 0: as configured
  double load = 0;                     ///< see Cluster::load
  double seconds = 0;
  bool is_check = false;  ///< the step is not fitted, but compared with its prediction

  StepWork work_of(const StepWork& base) const;
  /// Returns `placement` with the group size of `options` or, if they set none, that of `base`.
  Placement placement_of(const StepWork& base) const;
  Cluster cluster() const { return {.link = link, .load = load}; }
  std::string name() const;  ///< "2 ranks, 1Gbit/s, zero1"
};

/// Reads a file with the columns ranks, link, strategy and seconds, and optionally shard_size, options, batch, micro_batches, load and use
/// (fit or check). If lines differ only in `seconds`, only the shortest time counts. Error(Data) names file and line for invalid values and
/// unknown columns.
std::vector<MeasuredStep> read_measured(const std::filesystem::path& path);

/// A measured step and its prediction.
struct CheckedStep {
  MeasuredStep step{};
  double predicted = 0;
  bool was_fitted = false;  ///< whether the rates of `predicted` were fitted to this step, too

  double error() const { return predicted / step.seconds - 1; }
};

struct StepFit {
  StepRates rates{};
  std::vector<CheckedStep> steps{};
  bool by_parts = false;  ///< no step was marked as a check, so each fifth of the steps was predicted from the other four

  /// Mean and largest absolute error over the steps that were not fitted; 0 if there are none.
  double mean_error() const;
  double largest_error() const;
};

/// Returns the rates that minimise the squared logarithm of predicted / measured seconds. Rates that the steps do not determine stay near
/// `start`. Error(Data) if there is no step to fit.
StepFit fit_rates(const StepWork& base, const std::vector<MeasuredStep>& steps, const StepRates& start = {});

/// Describes how a plan goes beyond the measured steps, for example "more than 4 ranks"; "" if it does not.
std::string beyond_measured(const StepWork& work, const std::vector<MeasuredStep>& steps, const Placement& placement,
                            const LinkSpeed& link);

}  // namespace npu_train
