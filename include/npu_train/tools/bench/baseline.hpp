/// What a training reached and what it cost on one device, as a file that the same training on another device is held against.
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
  int64_t parameters = 0;                            ///< trainable ones
  int64_t effective_batch = 0;                       ///< samples of an update
  std::vector<int64_t> steps{};                      ///< optimizer steps taken, one for each of `losses`
  std::vector<double> losses{}, lrs{};               ///< of each step: mean loss over its batch, learning rate
  Scalars val{};                                     ///< last validation: "loss" and the task's metrics; empty without one
  Samples step_seconds{};                            ///< of steps after the warm-up: the first tenth of the run, 2 to 20 steps, is left out
  int64_t peak_memory = 0;                           ///< bytes; -1: not known
  std::string peak_memory_of{};                      ///< "process" (its resident set, on a CPU) or "tensors" (of the device)
  ConfigNode config{};                               ///< resolved
  std::map<std::string, std::string> environment{};  ///< see align/environment.hpp
  std::string run_dir{};                             ///< where the run's files went; "" without; not part of the file

  /// Over the steps that count, in the median.
  double samples_per_second() const { return static_cast<double>(effective_batch) / step_seconds.median(); }
};

/// Trains as the configuration says, to its end. Errors are those of Trainer::fit; Error(Usage) when no step of it would count, and before
/// anything is trained when it is not the training of `reference` (compare_baselines).
Baseline record_baseline(const RunConfig& config, const Parts& parts = builtin_parts(), const Baseline* reference = nullptr);

Json to_json(const Baseline& baseline);
/// Error(Data) for a file that is missing or no baseline.
Baseline read_baseline(const std::filesystem::path& path);

struct BaselineOptions {
  /// Points (of 100) by which a metric of validation may be worse; half a point is what ports of trainings are usually accepted by.
  double metric_points = 0.5;
  double least_speed = 1;    ///< images per second over the reference's that are asked for
  HistoryOptions history{};  ///< for the losses of the steps, and mean_rtol for the loss of validation
};

/// Error(Usage) where the two are not the same training: other parameters, another effective batch.
void check_same_training(const Baseline& now, const Baseline& reference);
/// Error(Usage) for numbers that cannot be meant; compare_baselines checks them too.
void check_options(const BaselineOptions& options);

/// One number of both sides. Of a metric `worse` is by how much it is worse, in its unit; negative: better.
struct BaselineMetric {
  std::string name;
  double now = 0, reference = 0, worse = 0, allowed = 0;
  bool passed = true;
};

/// A baseline held against another.
struct BaselineComparison {
  Baseline now, reference;
  HistoryComparison history;               ///< losses of the steps; A is now
  std::vector<BaselineMetric> metrics{};   ///< of the validation
  std::vector<ConfigDifference> config{};  ///< settings that may change numbers, device and precision aside
  double speed = 0;                        ///< images per second, now over reference, judged or not
  /// Between which `speed` lies in 95 of 100 cases, by the scatter of the steps (order statistics of the medians).
  double speed_low = 0, speed_high = 0;
  std::optional<double> memory{};         ///< peak memory, now over reference; none where they are of unlike kinds, or not known
  double least_speed = 1, mean_rtol = 0;  ///< that were asked for
  std::vector<std::string> notes{};
  std::string advice{};  ///< where the losses differ and something is to be tried first; else ""

  bool accuracy_passed() const;
  /// By how much the losses differ, and which metrics are worse than allowed.
  std::string accuracy_sentence() const;
  /// Why there is no verdict on the speed: a simulator's says nothing of a chip, and an interval takes six steps on both sides. "": there
  /// is one.
  std::string speed_obstacle() const;
  bool speed_judged() const { return speed_obstacle().empty(); }
  /// False where even the upper bound is below what is asked for.
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
