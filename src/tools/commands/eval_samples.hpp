// The answers of a classifier for each sample of a validation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/data/dataset.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train::cli {

struct SampleOutcome {
  int64_t index = 0, target = 0, prediction = 0;  ///< index in the data set; the prediction is -1 if the outputs are not finite
  double probability = 0, of_target = 0;          ///< probability of the prediction, and of the right class
};

/// The outcomes in the order of the data set, and the names that they need.
struct SampleOutcomes {
  std::vector<SampleOutcome> samples{};
  std::vector<std::string> classes{};  ///< by label; may be empty
  std::shared_ptr<const Dataset> data{};

  std::string class_name(int64_t label) const;
};

/// Adds a metric to `config` and `parts` that collects the outcomes of a validation in the returned object. The metrics of the task stay.
/// `classes`: the number of the model's classes; 0: unknown. Error(Usage) unless the task is the classifier.
std::shared_ptr<SampleOutcomes> collect_outcomes(RunConfig& config, Parts& parts, size_t classes);
/// Name of that metric, which reports do not show.
inline constexpr const char* kOutcomesMetric = "sample_outcomes";

/// Writes a row for each sample: sample, file, target, prediction, probability, probability_of_target.
void write_outcomes(const std::string& path, const SampleOutcomes& outcomes);

/// Adds the scores of each class, the most frequent confusions, the confusion matrix (on the page, for at most 50 classes) and the samples
/// whose right class got the least probability; samples with an ignored target are not among these.
void add_outcomes(Report& out, const SampleOutcomes& outcomes);

}  // namespace npu_train::cli
