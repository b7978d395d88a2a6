/// The seam between a model and the engine: what is trained, on which loss, measured how. The engine never sees a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/outputs.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/nn/unit.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

/// The result of a task for one micro-batch.
struct StepOutput {
  at::Tensor loss;  ///< scalar: the mean loss over the batch, attached to the graph in training
  /// What that mean counts for in its window (usually the number of samples). 0: the batch gives no gradient and no loss, whatever its
  /// mean (that over no token is not a number).
  double weight = 0;
  Outputs outputs{};  ///< what the metrics are computed from (logits, predictions); may be empty
};

/// A named tensor of a model that is not trained but belongs to it (running statistics).
using NamedTensor = std::pair<std::string, at::Tensor>;

class Task {
 public:
  virtual ~Task() = default;

  /// Loss on one batch, in training mode and under the precision's scope. The batch is on the task's device.
  virtual StepOutput training_step(const Batch& batch) = 0;
  /// The same for validation; called without gradients and in evaluation mode.
  virtual StepOutput validation_step(const Batch& batch) { return training_step(batch); }
  /// The forward for prediction and export: the input alone, evaluation mode.
  virtual at::Tensor predict(const at::Tensor& input) = 0;
  /// The same for the inputs of a batch, and with all outputs: for models that have several. ModelTask implements it.
  virtual Outputs forward(const Batch& batch) { return predict(batch.input()); }

  /// What a batch of `samples` weighs in its window, about: StepOutput::weight of a full one. A task whose loss is a mean over tokens
  /// gives samples times tokens. With accumulation losses are divided by it before their backward, so it decides which gradients fit
  /// fp16; the update does not depend on it.
  virtual double weight_of(int64_t samples) const { return static_cast<double>(samples); }

  /// The plural of what StepOutput::weight counts, if that is something else than samples: "tokens". Progress and logs then have its number
  /// per second ("tokens_per_second").
  virtual std::string weight_unit() const { return {}; }

  /// The trainable tensors. The same names in the same order at every call.
  virtual ParameterSet parameters() = 0;
  /// Running statistics and other tensors that belong to the model. The tensors share memory with the model.
  virtual std::vector<NamedTensor> buffers() { return {}; }

  /// Parts of the network whose parameters are brought together where ranks hold them in shards (trainer.strategy=zero3), in the order in
  /// which a forward pass runs them: training_step() and the others call each as a function.
  virtual std::vector<Unit> units() { return {}; }

  /// Names of the parameters that stay fp32 where the others are cast ("bf16-true"): those of normalisation layers.
  virtual std::vector<std::string> norm_parameters() { return {}; }

  /// Classes of the layers by path ("layer1.0.conv1" -> "Conv2d"; "" is the network), for reports and dumps. What is missing is named
  /// after its operator.
  virtual std::map<std::string, std::string> module_types() { return {}; }

  /// Names of the metrics in addition to the loss, such as "acc1".
  virtual std::vector<std::string> metric_names() const { return {}; }
  /// Sum of each metric over a batch: fp32 [number of metrics] on the device, without gradients. Divided by the summed `Batch::size`, the
  /// sums of many batches give the metric; sums add over ranks too. A task whose metrics are means over something else (tokens, detected
  /// objects) returns [2, number of metrics]: the sums, and how much each of them is of. Those are summed and divide in place of the
  /// samples.
  virtual at::Tensor metric_sums(const StepOutput& /*output*/, const Batch& /*batch*/) { return {}; }

  /// Further metrics, which follow from a mean loss, such as a perplexity: the same names in the same order for every loss. They are
  /// computed from the mean over a step, an epoch or a validation, since their own means would be something else.
  virtual Scalars metrics_of_loss(double /*loss*/) const { return {}; }

  /// Whether training_step() and metric_sums() queue the same work for every batch of a shape: the host reads no value of the device, draws
  /// no random number and makes no decision that changes from step to step. Then a run may capture them (trainer.cuda_graphs).
  virtual bool capturable() const { return false; }

  /// Random targets for a batch of random inputs, for measurements that have no data. Error(Usage) for a task that cannot make them.
  virtual at::Tensor example_target(const Batch& inputs) const;

  /// Training mode (dropout, batch statistics) or evaluation.
  virtual void set_training(bool on) = 0;
  /// Moves parameters and buffers.
  virtual void to(c10::Device device) = 0;
};

/// The loss times weight / full_weight, in fp32 if it is of low precision; the loss itself if the two weights are equal or full_weight is
/// 0.
at::Tensor share_of_window(const StepOutput& output, double full_weight);
/// Error(Usage) unless the loss is one number and the weight finite and at least 0.
void check_output(const StepOutput& output, const char* where);
/// Names of all metrics in addition to the loss, in the order of reports: metric_names(), then those of metrics_of_loss().
std::vector<std::string> all_metric_names(const Task& task);
/// Adds metrics_of_loss() to averages that begin with the loss; nothing to an empty list.
void add_metrics_of_loss(const Task& task, Scalars& averages);
/// metric_sums() as [2 x number of metrics]: the sums, then their counts, which are the batch's samples where the task gives none.
/// Undefined without metrics. Error(Usage) unless there is one number, or a sum and a count, for each of metric_names().
at::Tensor checked_metric_sums(Task& task, const StepOutput& output, const Batch& batch);

}  // namespace npu_train
