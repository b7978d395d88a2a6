/// Metrics that are reported next to the loss, and that a configuration can name:
///
///   parts.metrics.add<npu_train::NoOptions>("largest_error", "largest error of a sample", [](const npu_train::NoOptions&) {
///     return npu_train::Metric{"largest_error", my_sums};
///   });   // task: {name: classifier, metrics: [{name: accuracy, k: 3}, largest_error]}
///
/// This file also has metrics that need all samples of a validation, and running averages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/registry.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

/// A metric: a mean, by default over samples, or a value computed from the mean loss or from all samples of a validation. Exactly one of
/// `sums`, `of_loss` and the pair `rows` and `of_rows` is set.
struct Metric {
  std::string name;  ///< "acc1"; logged for a validation as "val/acc1"
  /// Returns the sum over a batch: one fp32 number on the device. Called without gradients. The sums are added over batches and ranks, and
  /// divided by the number of samples, or by the sum of `counts`. A "mask" [batch] in the batch is 0 for samples that do not count.
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> sums{};
  /// Returns the divisor if it is not the number of samples: one number on the device, such as the number of tokens for an accuracy. If it
  /// adds up to 0 in a step or validation, the metric is NaN.
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> counts{};
  /// Computes the metric from a mean loss.
  std::function<double(double loss)> of_loss{};
  /// Returns the numbers of each sample that `of_rows` needs, fp32 [samples, columns] on the device, without padding. They are kept in host
  /// memory until the end of a validation. The metric does not exist for training steps.
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> rows{};
  /// Computes the metric from the rows of all samples and ranks, fp32 on the host.
  std::function<double(const at::Tensor& rows)> of_rows{};
};

/// Returns the metric "acc1", "acc5", ...: the percentage of samples whose class is among the `k` largest logits (ties count against it).
/// The first output is logits [batch, classes], the target [batch] (int64) or [batch, classes].
Metric accuracy(int64_t k);

/// Returns the metric "acc" for samples with any number of classes: the percentage of right decisions, one for each sample and class. The
/// decision is yes for a logit [batch, classes] above 0; targets are [batch, classes].
Metric multilabel_accuracy();

/// Returns the metric "mae": the mean absolute difference between first output and target, over all elements of a sample.
Metric mean_absolute_error();

/// Precision, recall and F1 of a classification: fractions from 0 to 1; 0 where the divisor is 0, as in scikit-learn's
/// precision_recall_fscore_support(zero_division=0). For targets [batch] (int64) the prediction is the largest logit; for targets [batch,
/// classes] (several labels, 0 or 1) it is each class whose logit is above 0.
enum class ClassScore { Precision, Recall, F1 };
/// Micro: from the counts of all classes together. Macro: the mean over the classes that occur among targets or predictions. Weighted: the
/// mean weighted by the number of targets of a class.
enum class ScoreAverage { Macro, Micro, Weighted };
/// Returns the metric "f1", "precision_micro", ... (macro has no suffix).
Metric class_score(ClassScore score, ScoreAverage average = ScoreAverage::Macro);
/// Returns the metric "f1_3", ... : the score of one class.
Metric class_score(ClassScore score, int64_t label);

/// Returns the metric "auroc": the area under the ROC curve of each class against the others, averaged over the classes that have both
/// positive and negative samples (NaN if there is none); ties count half. The score of a class is its probability for targets [batch], as
/// in scikit-learn's roc_auc_score(multi_class="ovr"), and its logit for targets [batch, classes].
Metric auroc();
/// Returns the metric "map": the average precision of each class, sum of (R_n - R_(n-1)) P_n over the thresholds, averaged over the classes
/// that have targets (NaN if there is none), as in scikit-learn's average_precision_score. Scores as for auroc().
Metric mean_average_precision();
/// Returns the metric "ece": the expected calibration error of the predicted class over `bins` equal intervals of its probability (Guo et
/// al. 2017), a fraction from 0 to 1. Only for targets [batch].
Metric calibration_error(int64_t bins = 15);

/// Return the metrics "mse", "rmse" (over all elements) and "r2" of a regression. "r2" is the coefficient of determination, averaged over
/// the columns of the target, as in scikit-learn's r2_score; a constant column counts 1 if it is predicted exactly, and 0 otherwise.
Metric mean_squared_error();
Metric root_mean_squared_error();
Metric r2_score();

/// Returns the metric "perplexity": exp(loss), for a language model, whose loss is the mean cross entropy per token in nats.
Metric perplexity();

/// Metrics that a configuration can name.
using MetricRegistry = Registry<Metric>;

/// Adds accuracy (key k), multilabel_accuracy, precision, recall and f1 (keys average, label), auroc, map, ece (key bins), mae, mse, rmse,
/// r2 and perplexity.
void add_builtin_metrics(MetricRegistry& registry);
MetricRegistry builtin_metrics();

/// Creates the metrics of a list such as `task.metrics`. Error(Usage) for unknown names and options.
std::vector<Metric> make_metrics(const std::vector<PartConfig>& list, const std::string& path, const MetricRegistry& registry);

// Metrics of a validation that need all of its samples at once, such as the recall of a retrieval.

/// Additional base class of a Task that keeps a row of numbers for each sample of a validation. At the end, every rank has the rows of all
/// samples in host memory. In validations, the metrics of epoch_metric_names() replace those with the same names that metric_sums() gives
/// for each batch. A name that metric_sums() does not give exists only in validations.
class EpochMetrics {
 public:
  virtual ~EpochMetrics() = default;

  /// Returns the names; empty: no such metrics.
  virtual std::vector<std::string> epoch_metric_names() const = 0;
  /// Returns the rows of a batch, floating point [samples, columns], without padding.
  virtual at::Tensor epoch_rows(const StepOutput& output, const Batch& batch) const = 0;
  /// Returns the sum of each of these metrics over the samples [first, first + count) of `rows`, which has the rows of all ranks, in fp32
  /// on the host. The metric is the total over all ranks, divided by the number of all samples.
  virtual std::vector<double> epoch_sums(const at::Tensor& rows, int64_t first, int64_t count) const = 0;
};

/// Weighted mean.
class MeanMeter {
 public:
  /// Adds a value; with weight 0 it is ignored, even if it is NaN.
  void add(double value, double weight = 1) {
    if (weight == 0) return;
    sum_ += value * weight;
    weight_ += weight;
  }
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }
  double sum() const { return sum_; }
  double weight() const { return weight_; }
  /// Sets the values of sum() and weight() from a checkpoint.
  void restore(double sum, double weight) {
    sum_ = sum;
    weight_ = weight;
  }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

/// A mean for each name, in the order of first appearance. Non-finite values count: an average over a NaN is NaN.
class MetricMeter {
 public:
  void add(const Scalars& scalars, double weight) { add(scalars, std::vector<double>(scalars.size(), weight)); }
  /// Adds each scalar with its own weight.
  void add(const Scalars& scalars, const std::vector<double>& weights) {
    for (size_t i = 0; i < scalars.size(); ++i) at(i, scalars[i].first).add(scalars[i].second, weights[i]);
  }
  /// Returns the means of the names for which at least one value counted.
  Scalars value() const {
    Scalars out;
    for (const auto& [name, meter] : meters_)
      if (meter.weight() > 0) out.emplace_back(name, meter.value());
    return out;
  }
  void reset() { meters_.clear(); }
  const std::vector<std::pair<std::string, MeanMeter>>& meters() const { return meters_; }
  void restore(const std::string& name, double sum, double weight) {
    meters_.emplace_back(name, MeanMeter{});
    meters_.back().second.restore(sum, weight);
  }

 private:
  /// Returns the meter of `name`, moved to position `i`, so that the order is that of the newest scalars.
  MeanMeter& at(size_t i, const std::string& name) {
    for (size_t k = i; k < meters_.size(); ++k)
      if (meters_[k].first == name) {
        std::swap(meters_[i], meters_[k]);
        return meters_[i].second;
      }
    return meters_.insert(meters_.begin() + static_cast<std::ptrdiff_t>(i), {name, MeanMeter{}})->second;
  }

  std::vector<std::pair<std::string, MeanMeter>> meters_;
};

}  // namespace npu_train
