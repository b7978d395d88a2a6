/// Numbers that are reported next to the loss, by name in a configuration:
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

/// A metric that is a mean, over samples if nothing else is said, or that follows from the mean loss.
struct Metric {
  std::string name;  ///< "acc1"; logged as "val/acc1"
  /// Its sum over a batch: one fp32 number on the device. Called without gradients. Sums of many batches and of many ranks add up; divided
  /// by the number of samples, or by what `counts` adds up to, they are the metric. A "mask" [batch] in the batch is 0 for samples that do
  /// not count.
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> sums{};
  /// How much the sum is of, if that is not the number of samples: one number on the device, such as the tokens of an accuracy. A step or
  /// validation in which it adds up to 0 has no such metric (NaN).
  std::function<at::Tensor(const StepOutput& output, const Batch& batch)> counts{};
  /// Instead of sums: the metric for a mean loss.
  std::function<double(double loss)> of_loss{};
};

/// Share of the samples, in percent, whose class is among the `k` largest logits (ties count against it): "acc1", "acc5". The first output
/// is logits [batch, classes], the target [batch] (int64) or [batch, classes].
Metric accuracy(int64_t k);

/// Mean absolute difference between first output and target, "mae"; over all elements of a sample.
Metric mean_absolute_error();

/// exp(loss), "perplexity": of a language model, whose loss is the mean cross entropy of a token in nats.
Metric perplexity();

/// Metrics that a configuration can name.
using MetricRegistry = Registry<Metric>;

/// accuracy (key k), mae, perplexity.
void add_builtin_metrics(MetricRegistry& registry);
MetricRegistry builtin_metrics();

/// The metrics of a list such as `task.metrics`. Error(Usage) for unknown names and options.
std::vector<Metric> make_metrics(const std::vector<PartConfig>& list, const std::string& path, const MetricRegistry& registry);

}  // namespace npu_train
