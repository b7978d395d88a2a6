#include "npu_train/train/task.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"
#include "npu_train/train/metric.hpp"

namespace npu_train {

at::Tensor Task::example_target(const Batch& /*inputs*/) const {
  throw Error(ErrorKind::Usage, "Task", "this task cannot make targets for random inputs", "override Task::example_target()");
}

namespace {

std::string loss_name(const std::string& optimizer) { return optimizer + "_loss"; }

}  // namespace

StepOutput AlternatingTask::training_step(const ForwardContext& context) {
  StepOutput sum;
  std::vector<Outputs::Field> fields;
  for (const auto& name : optimizers()) {
    const auto own = loss_of(name, context);
    fields.insert(fields.end(), own.outputs.fields().begin(), own.outputs.fields().end());
    fields.emplace_back(loss_name(name), own.loss.detach());
    if (!sum.loss.defined()) sum.weight = own.weight;
    sum.loss = sum.loss.defined() ? sum.loss + own.loss : own.loss;
  }
  sum.outputs = Outputs(std::move(fields));
  return sum;
}

std::vector<std::string> AlternatingTask::metric_names() const {
  std::vector<std::string> out;
  for (const auto& name : optimizers()) out.push_back(loss_name(name));
  return out;
}

// Returns [2, optimizers]: the losses times their weight, and the weights.
at::Tensor AlternatingTask::metric_sums(const StepOutput& output, const Batch& /*batch*/) {
  const auto none = at::zeros({}, output.loss.options().dtype(at::kFloat).requires_grad(false));
  std::vector<at::Tensor> sums, counts;
  for (const auto& name : metric_names()) {
    const bool counts_here = output.outputs.has(name) && output.weight > 0;
    sums.push_back(counts_here ? output.outputs.at(name).detach().to(at::kFloat).reshape({}) * output.weight : none);
    counts.push_back(counts_here ? at::full_like(none, output.weight) : none);
  }
  return at::stack({at::stack(sums), at::stack(counts)});
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
