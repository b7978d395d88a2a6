// A task that passes calls to another one. Tests override the functions that they watch or change.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/train/task.hpp"

namespace npu_train::testing {

struct WrappedTask : Task {
  explicit WrappedTask(std::shared_ptr<Task> task) : inner(std::move(task)) {}
  StepOutput training_step(const ForwardContext& context) override { return inner->training_step(context); }
  at::Tensor predict(const at::Tensor& input) override { return inner->predict(input); }
  ParameterSet parameters() override { return inner->parameters(); }
  std::vector<NamedTensor> buffers() override { return inner->buffers(); }
  std::vector<std::string> metric_names() const override { return inner->metric_names(); }
  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override { return inner->metric_sums(output, batch); }
  void set_training(bool on) override { inner->set_training(on); }
  void to(c10::Device device) override { inner->to(device); }
  std::shared_ptr<Task> inner;
};

}  // namespace npu_train::testing
