#include "npu_train/train/task.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>

#include "npu_train/core/error.hpp"
#include "npu_train/train/epoch_metrics.hpp"

namespace npu_train {

at::Tensor Task::example_target(const Batch& /*inputs*/) const {
  throw Error(ErrorKind::Usage, "Task", "this task cannot make targets for random inputs", "override Task::example_target()");
}

at::Tensor share_of_window(const StepOutput& output, double full_weight) {
  if (full_weight == 0 || output.weight == full_weight) return output.loss;
  const bool low = output.loss.scalar_type() == at::kHalf || output.loss.scalar_type() == at::kBFloat16;
  return (low ? output.loss.to(at::kFloat) : output.loss) * (output.weight / full_weight);
}

void check_output(const StepOutput& output, const char* where) {
  check(output.loss.defined(), ErrorKind::Usage, where, "the task's loss must be one number; it is an undefined tensor");
  check(output.loss.numel() == 1, ErrorKind::Usage, where, "the task's loss must be one number; it has shape ", output.loss.sizes());
  check(output.weight >= 0 && std::isfinite(output.weight), ErrorKind::Usage, where, "the weight of a batch is ", output.weight,
        "; allowed: a finite number of at least 0");
}

std::vector<std::string> step_metric_names(const Task& task) {
  auto out = task.metric_names();
  for (const auto& [name, value] : task.metrics_of_loss(0)) out.push_back(name);
  return out;
}

std::vector<std::string> all_metric_names(const Task& task) {
  auto out = step_metric_names(task);
  if (const auto* epochs = dynamic_cast<const EpochMetrics*>(&task))
    for (const auto& name : epochs->epoch_metric_names())
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  return out;
}

void add_metrics_of_loss(const Task& task, Scalars& averages) {
  if (averages.empty()) return;
  const auto further = task.metrics_of_loss(averages.front().second);
  averages.insert(averages.end(), further.begin(), further.end());
}

at::Tensor checked_metric_sums(Task& task, const StepOutput& output, const Batch& batch) {
  const auto sums = task.metric_sums(output, batch);
  const auto names = task.metric_names().size();
  const bool counted = sums.defined() && sums.dim() == 2 && sums.size(0) == 2;
  const auto given = sums.defined() ? sums.numel() / (counted ? 2 : 1) : 0;
  check(static_cast<size_t>(given) == names && (given == 0 || counted || sums.dim() == 1), ErrorKind::Usage, "Task",
        "metric_names() gives ", names, " names and metric_sums() ", given, " numbers; it must give one for each, as [", names,
        "], or with their counts as [2, ", names, "]");
  if (given == 0) return {};
  const auto here = sums.to(output.loss.device(), at::kFloat);
  if (counted) return here.reshape({-1});
  return at::cat({here, at::full_like(here, static_cast<double>(batch.size))});
}

}  // namespace npu_train
