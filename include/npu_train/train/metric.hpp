/// Metrics that are reported next to the loss, and that a configuration names:
///
///   parts.metrics.add<npu_train::NoOptions>("largest_error", "largest error of a sample", [](const npu_train::NoOptions&) {
///     return npu_train::Metric{"largest_error", my_sums};
///   });   // task: {name: classifier, metrics: [{name: accuracy, k: 3}, largest_error]}
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "npu_train/core/registry.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

/// A metric that is a mean, by default over samples, or that is computed from the mean loss.
struct Metric {
  std::string name;  ///< "acc1"; logged as "val/acc1"
  /// Returns the sum over a batch: one fp32 number on the device. Called without gradients. The sums are added over batches and ranks, and
  /// divided by the number of samples, or by the sum of `counts`. A "mask" [batch] in the batch is 0 for samples that do not count.
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> sums{};
  /// Returns the divisor if it is not the number of samples: one number on the device, such as the number of tokens of an accuracy. In a
  /// step or validation in which it adds up to 0, the metric is NaN.
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> counts{};
  /// Computes the metric from a mean loss; given instead of `sums`.
  std::function<double(double loss)> of_loss{};
};

/// Returns the metric "acc1", "acc5", ...: the percentage of samples whose class is among the `k` largest logits (ties count against it).
/// The first output is logits [batch, classes], the target [batch] (int64) or [batch, classes].
Metric accuracy(int64_t k);

/// Returns the metric "mae": the mean absolute difference between first output and target, over all elements of a sample.
Metric mean_absolute_error();

/// Returns the metric "perplexity": exp(loss), for a language model, whose loss is the mean cross entropy of a token in nats.
Metric perplexity();

/// Metrics that a configuration can name.
using MetricRegistry = Registry<Metric>;

/// Adds accuracy (key k), mae and perplexity.
void add_builtin_metrics(MetricRegistry& registry);
MetricRegistry builtin_metrics();

/// Creates the metrics of a list such as `task.metrics`. Error(Usage) for unknown names and options.
std::vector<Metric> make_metrics(const std::vector<PartConfig>& list, const std::string& path, const MetricRegistry& registry);

}  // namespace npu_train
