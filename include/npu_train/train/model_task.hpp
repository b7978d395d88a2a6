/// Tasks around a Model: everything but the loss comes from the network itself.
///
///   auto loss = [](const npu_train::Outputs& out, const npu_train::Batch& batch) {
///     return torch::huber_loss(out.first(), batch.target());
///   };
///   trainer.fit(npu_train::task(MyNet(), loss, {npu_train::mean_absolute_error()}), train_data, val_data);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/nn/model.hpp"
#include "npu_train/train/metric.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

/// Base class for your own tasks, with the parameters, buffers, norm parameters and layer types of the model's module. Override
/// training_step(), and each other function whose default is not right for your task.
class ModelTask : public Task, public EpochMetrics {
 public:
  /// Error(Usage) for a model without module or forward, for a metric without a name or without exactly one kind of function, and for a
  /// name used twice.
  explicit ModelTask(Model model, std::vector<Metric> metrics = {});

  at::Tensor predict(const at::Tensor& input) override { return model_.forward(input); }
  /// Calls predict() if the model's forward takes one tensor, otherwise the model's forward with the batch. In the second case, for example
  /// with a built-in decoder, a task that overrides predict() must override this function, too.
  Outputs forward(const Batch& batch) override;
  ParameterSet parameters() override;
  std::vector<NamedTensor> buffers() override;
  std::vector<Unit> units() override { return model_.units; }
  std::vector<std::string> norm_parameters() override;
  std::map<std::string, std::string> module_types() override;
  std::vector<std::string> metric_names() const override;
  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override;
  Scalars metrics_of_loss(double loss) const override;
  std::vector<std::string> epoch_metric_names() const override;
  at::Tensor epoch_rows(const StepOutput& output, const Batch& batch) const override;
  std::vector<double> epoch_sums(const at::Tensor& rows, int64_t first, int64_t count) const override;
  bool capturable() const override { return model_.capturable; }
  /// Returns random class labels, int64 [batch].
  at::Tensor example_target(const Batch& inputs) const override;
  void set_training(bool on) override;
  void to(c10::Device device) override;

  const Model& model() const { return model_; }

 protected:
  Model model_;

 private:
  std::vector<Metric> metrics_;
};

/// Returns the mean loss over the samples of a batch: a scalar, attached to the graph.
using LossFunction = std::function<at::Tensor(const Outputs& outputs, const Batch& batch)>;

/// Returns a task with a model, a loss and metrics. The loss is weighted by Batch::weight, the number of samples.
std::shared_ptr<Task> task(Model model, LossFunction loss, std::vector<Metric> metrics = {});

/// Returns a Model for a module: a holder (TORCH_MODULE) or a shared_ptr, with `forward` of a tensor or of a Batch, and optionally units().
template <class Net>
Model as_model(Net net) {
  auto impl = [&net] {
    if constexpr (requires { net.ptr(); })
      return net.ptr();
    else
      return net;
  }();
  Model model;
  // The tensor is tried first, because the forward of torch::nn::Sequential accepts any argument.
  if constexpr (requires(const at::Tensor& input) { impl->forward(input); })
    model.forward = [impl](const at::Tensor& input) -> at::Tensor { return impl->forward(input); };
  else
    model.forward = [impl](const Batch& batch) -> Outputs { return impl->forward(batch); };
  if constexpr (requires { model.units = impl->units(); }) model.units = impl->units();
  model.module = impl;
  return model;
}

template <class Net>
requires(!std::is_same_v<std::decay_t<Net>, Model>) std::shared_ptr<Task> task(Net net, LossFunction loss,
                                                                               std::vector<Metric> metrics = {}) {
  return task(as_model(std::move(net)), std::move(loss), std::move(metrics));
}

}  // namespace npu_train
