/// Results and costs of a training on one device, saved in a file for comparison with the same training on another one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/align/config_diff.hpp"
#include "npu_train/tools/align/history.hpp"
#include "npu_train/tools/bench/samples.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

/// One recorded training.
struct Baseline {
  std::string model{}, data{}, device{}, precision{};
  int64_t parameters = 0;                            ///< trainable parameters
  int64_t effective_batch = 0;                       ///< samples per update
  std::vector<int64_t> steps{};                      ///< optimizer steps taken, one per entry of `losses`
  std::vector<double> losses{}, lrs{};               ///< per step: mean loss over its batch, learning rate
  Scalars val{};                                     ///< last validation: "loss" and the task's metrics; empty if there was none
  Samples step_seconds{};                            ///< seconds of the steps after the warm-up (the first tenth of the run, 2 to 20 steps)
  int64_t peak_memory = 0;                           ///< bytes; -1: unknown
  std::string peak_memory_of{};                      ///< "process" (resident set, on a CPU) or "tensors" (device memory)
  ConfigNode config{};                               ///< the resolved configuration
  std::map<std::string, std::string> environment{};  ///< see align/environment.hpp
  std::string run_dir{};                             ///< folder of the run's files; "": none; not written to the file

  /// Returns the speed, from the median over the measured steps.
  double samples_per_second() const { return static_cast<double>(effective_batch) / step_seconds.median(); }
};

/// Trains the configuration to its end. Throws the errors of Trainer::fit, and Error(Usage) if no step would be measured. With a
/// `reference`, throws Error(Usage) before the training if the configuration is not the reference's training (see check_same_training).
Baseline record_baseline(const RunConfig& config, const Parts& parts = builtin_parts(), const Baseline* reference = nullptr);

Json to_json(const Baseline& baseline);
/// Reads a baseline. Error(Data) for a file that is missing or not a baseline.
Baseline read_baseline(const std::filesystem::path& path);

struct BaselineOptions {
  /// Points (of 100) by which a validation metric may be worse; half a point is the usual limit for accepting a port.
  double metric_points = 0.5;
  double least_speed = 1;    ///< required ratio of samples per second to the reference
  HistoryOptions history{};  ///< options for the losses of the steps; mean_rtol also applies to the validation loss
};

/// Error(Usage) if the two are not the same training: different numbers of parameters or effective batches.
void check_same_training(const Baseline& now, const Baseline& reference);
/// Error(Usage) for invalid numbers. compare_baselines() calls it.
void check_options(const BaselineOptions& options);

/// One metric of both sides. `worse`: the amount, in the metric's unit, by which it is worse; negative if it is better.
struct BaselineMetric {
  std::string name;
  double now = 0, reference = 0, worse = 0, allowed = 0;
  bool passed = true;
};

/// A comparison of two baselines.
struct BaselineComparison {
  Baseline now, reference;
  HistoryComparison history;               ///< losses of the steps; side A is `now`
  std::vector<BaselineMetric> metrics{};   ///< metrics of the last validation
  std::vector<ConfigDifference> config{};  ///< settings that may change results, except device and precision
  double speed = 0;                        ///< ratio of samples per second, now to reference, even if there is no verdict
  /// The interval that contains `speed` in 95 of 100 cases, derived from the scatter of the steps (order statistics of the medians).
  double speed_low = 0, speed_high = 0;
  std::optional<double> memory{};         ///< ratio of peak memory, now to reference; nullopt if the kinds differ or one is unknown
  double least_speed = 1, mean_rtol = 0;  ///< the required values
  std::vector<std::string> notes{};
  std::string advice{};  ///< a first remedy if the losses differ; "" if they do not

  bool accuracy_passed() const;
  /// Describes the difference of the losses, and the metrics that are worse than allowed.
  std::string accuracy_sentence() const;
  /// Returns why there is no verdict on the speed: a simulator's speed does not represent a chip, and an interval needs six steps on both
  /// sides. "": there is a verdict.
  std::string speed_obstacle() const;
  bool speed_judged() const { return speed_obstacle().empty(); }
  /// Whether the speed suffices. False only if even the upper bound is below the required speed.
  bool speed_passed() const { return !speed_judged() || speed_high >= least_speed; }
};

/// Compares two baselines. Throws the errors of check_same_training and check_options.
BaselineComparison compare_baselines(Baseline now, Baseline reference, const BaselineOptions& options = {});

Report report_of(const Baseline& baseline);
Report report_of(const BaselineComparison& comparison);

}  // namespace npu_train
