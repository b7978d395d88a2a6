/// The results and costs of a training on one device, as a file with which the same training on another device is compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/align/config_diff.hpp"
#include "npu_train/tools/align/history.hpp"
#include "npu_train/tools/bench/samples.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

/// One recorded training.
struct Baseline {
  std::string model{}, data{}, device{}, precision{};
  int64_t parameters = 0;                            ///< trainable parameters
  int64_t effective_batch = 0;                       ///< samples of an update
  std::vector<int64_t> steps{};                      ///< optimizer steps taken, one for each of `losses`
  std::vector<double> losses{}, lrs{};               ///< of each step: mean loss over its batch, learning rate
  Scalars val{};                                     ///< last validation: "loss" and the task's metrics; empty if there was none
  Samples step_seconds{};                            ///< of steps after the warm-up: the first tenth of the run, 2 to 20 steps, is omitted
  int64_t peak_memory = 0;                           ///< bytes; -1: unknown
  std::string peak_memory_of{};                      ///< "process" (its resident set, on a CPU) or "tensors" (of the device)
  ConfigNode config{};                               ///< resolved
  std::map<std::string, std::string> environment{};  ///< see align/environment.hpp
  std::string run_dir{};                             ///< folder of the run's files; "" if none; not part of the file

  /// The median over the measured steps.
  double samples_per_second() const { return static_cast<double>(effective_batch) / step_seconds.median(); }
};

/// Trains the configuration to its end. Errors are those of Trainer::fit; Error(Usage) if no step would be measured, and before
/// training if it is not the training of `reference` (compare_baselines).
Baseline record_baseline(const RunConfig& config, const Parts& parts = builtin_parts(), const Baseline* reference = nullptr);

Json to_json(const Baseline& baseline);
/// Error(Data) for a file that is missing or not a baseline.
Baseline read_baseline(const std::filesystem::path& path);

struct BaselineOptions {
  /// Points (of 100) by which a validation metric may be worse; half a point is the usual limit for accepting a port.
  double metric_points = 0.5;
  double least_speed = 1;    ///< required samples per second, divided by the reference's
  HistoryOptions history{};  ///< for the losses of the steps, and mean_rtol for the validation loss
};

/// Error(Usage) if the two are not the same training: different parameters or effective batch.
void check_same_training(const Baseline& now, const Baseline& reference);
/// Error(Usage) for invalid numbers; compare_baselines also checks them.
void check_options(const BaselineOptions& options);

/// One number of both sides. `worse` is the amount by which a metric is worse, in its unit; negative: better.
struct BaselineMetric {
  std::string name;
  double now = 0, reference = 0, worse = 0, allowed = 0;
  bool passed = true;
};

/// A comparison of two baselines.
struct BaselineComparison {
  Baseline now, reference;
  HistoryComparison history;               ///< losses of the steps; A is now
  std::vector<BaselineMetric> metrics{};   ///< of the validation
  std::vector<ConfigDifference> config{};  ///< settings that may change numbers, except device and precision
  double speed = 0;                        ///< samples per second, now divided by the reference, judged or not
  /// The interval that contains `speed` in 95 of 100 cases, from the scatter of the steps (order statistics of the medians).
  double speed_low = 0, speed_high = 0;
  std::optional<double> memory{};         ///< peak memory, now divided by the reference; nullopt if the kinds differ or one is unknown
  double least_speed = 1, mean_rtol = 0;  ///< the required values
  std::vector<std::string> notes{};
  std::string advice{};  ///< if the losses differ and there is a first remedy; otherwise ""

  bool accuracy_passed() const;
  /// The difference of the losses, and the metrics that are worse than allowed.
  std::string accuracy_sentence() const;
  /// Why there is no verdict on the speed: a simulator's speed does not represent a chip, and an interval needs six steps on both sides.
  /// "": there is one.
  std::string speed_obstacle() const;
  bool speed_judged() const { return speed_obstacle().empty(); }
  /// False if even the upper bound is below the required speed.
  bool speed_passed() const { return !speed_judged() || speed_high >= least_speed; }
};

/// Errors are those of check_same_training and check_options.
BaselineComparison compare_baselines(Baseline now, Baseline reference, const BaselineOptions& options = {});

std::string to_text(const Baseline& baseline);
std::string to_text(const BaselineComparison& comparison, size_t width = 0);
Json to_json(const BaselineComparison& comparison);
/// A self-contained page with both curves.
std::string to_html(const BaselineComparison& comparison);

}  // namespace npu_train
