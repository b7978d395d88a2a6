/// Measured steps, and the rates under which the model of step_time.hpp gives their times.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/plan/step_time.hpp"

namespace npu_train {

/// A step that was measured.
struct MeasuredStep {
  Placement placement{};
  LinkSpeed link{};
  std::string link_text{}, options{};  ///< as in the file; `options`: "dist.reduction=native", several with blanks
  int64_t batch = 0;                   ///< samples of a micro-batch; 0: the configuration's
  int64_t micro_batches = 0;           ///< of a window; 0: the configuration's
  double load = 0;                     ///< Cluster::load
  double seconds = 0;
  bool is_check = false;  ///< not fitted, but compared

  StepWork work_of(const StepWork& base) const;
  /// `placement` with the group size of `options`, or else of `base`.
  Placement placement_of(const StepWork& base) const;
  Cluster cluster() const { return {.link = link, .load = load}; }
  std::string name() const;  ///< "2 ranks, 1Gbit/s, zero1"
};

/// A file with the columns ranks, link, strategy and seconds, and if needed shard_size, options, batch, micro_batches, load and use (fit or
/// check). Of lines that differ in `seconds` alone the shortest counts. Error(Data) names file and line for what is not valid, and for
/// unknown columns.
std::vector<MeasuredStep> read_measured(const std::filesystem::path& path);

/// A measured step and its prediction by rates that were fitted without it.
struct CheckedStep {
  MeasuredStep step{};
  double predicted = 0;
  bool was_fitted = false;  ///< its time was among those that gave `predicted`

  double error() const { return predicted / step.seconds - 1; }
};

struct StepFit {
  StepRates rates{};
  std::vector<CheckedStep> steps{};
  bool by_parts = false;  ///< no step was kept for checks, so each fifth was predicted from the others

  /// Of the steps that were not fitted: the mean and the largest absolute error; 0 if there are none.
  double mean_error() const;
  double largest_error() const;
};

/// The rates with the least squares of the logarithms of predicted over measured seconds. What the steps do not determine stays near
/// `start`. Error(Data) if there is no step to fit.
StepFit fit_rates(const StepWork& base, const std::vector<MeasuredStep>& steps, const StepRates& start = {});

/// In what a plan is beyond the measured steps of the work: "more than 4 ranks"; "" if in nothing.
std::string beyond_measured(const StepWork& work, const std::vector<MeasuredStep>& steps, const Placement& placement,
                            const LinkSpeed& link);

}  // namespace npu_train
