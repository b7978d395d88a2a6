// What a classifier answered for each sample of a validation.
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
  double probability = 0, of_target = 0;          ///< of the prediction, and of the right class
};

/// The outcomes in the order of the data set, and what is needed to name them.
struct SampleOutcomes {
  std::vector<SampleOutcome> samples{};
  std::vector<std::string> classes{};  ///< by label; may be empty
  std::shared_ptr<const Dataset> data{};

  std::string class_name(int64_t label) const;
};

/// Makes the validations of `config` collect their outcomes, by a further metric that `parts` gets; the metrics of the task stay. The
/// result is filled by a validation. `classes`: those of the model; 0: unknown. Error(Usage) unless the task is the classifier.
std::shared_ptr<SampleOutcomes> collect_outcomes(RunConfig& config, Parts& parts, size_t classes);
/// The name of that metric, which is not to be shown.
inline constexpr const char* kOutcomesMetric = "sample_outcomes";

/// Writes a row for each sample: sample, file, target, prediction, probability, probability_of_target.
void write_outcomes(const std::string& path, const SampleOutcomes& outcomes);

/// Adds the scores of each class, the most frequent confusions, the confusion matrix (on the page, for at most 50 classes) and the samples
/// whose right class got the least probability. The samples do not contain ignored targets.
void add_outcomes(Report& out, const SampleOutcomes& outcomes);

}  // namespace npu_train::cli
