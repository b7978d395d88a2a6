/// Interface between a model and the engine: the trained parameters, the loss and the metrics. The engine never sees a network.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/forward_context.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/nn/unit.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train {

/// What a task computes for one micro-batch.
struct StepOutput {
  at::Tensor loss;  ///< scalar: the mean loss over the batch, attached to the graph in training
  /// Weight of this mean in its window (usually the number of samples). 0: the batch contributes no gradient and no loss, whatever its mean
  /// is (a mean over no tokens is not a number).
  double weight = 0;
  Outputs outputs{};  ///< values from which metrics are computed (logits, predictions); may be empty
};

/// A named tensor that belongs to a model but is not trained (running statistics).
using NamedTensor = std::pair<std::string, at::Tensor>;

class Task {
 public:
  virtual ~Task() = default;

  /// Returns the loss on one batch, context.batch(), in training mode and under the precision's scope. The batch is on the task's device.
  /// Called without gradients if only running statistics are measured (averages of kind swa and checkpoints).
  virtual StepOutput training_step(const ForwardContext& context) = 0;
  /// Returns the loss on a batch of a validation; called without gradients and in evaluation mode.
  virtual StepOutput validation_step(const ForwardContext& context) { return training_step(context); }
  /// Runs the forward pass for prediction and export: on the input alone, in evaluation mode.
  virtual at::Tensor predict(const at::Tensor& input) = 0;
  /// Runs the forward pass on the inputs of a batch and returns all outputs, for models that have several. ModelTask implements it.
  virtual Outputs forward(const Batch& batch) { return predict(batch.input()); }

  /// Returns the approximate weight of a batch of `samples` in its window: StepOutput::weight of a full batch. A task whose loss is a mean
  /// over tokens returns samples times tokens. With accumulation, losses are divided by this weight before their backward. It therefore
  /// decides whether gradients fit into fp16, but the update does not depend on it.
  virtual double weight_of(int64_t samples) const { return static_cast<double>(samples); }

  /// Returns the unit of StepOutput::weight, in the plural, if it is not samples: "tokens". Logs then report the rate "tokens_per_second".
  virtual std::string weight_unit() const { return {}; }

  /// Returns the trainable tensors, with the same names in the same order at every call.
  virtual ParameterSet parameters() = 0;
  /// Returns running statistics and other tensors that belong to the model. They share memory with it.
  virtual std::vector<NamedTensor> buffers() { return {}; }

  /// Returns the parts of the network whose sharded parameters are gathered together (trainer.strategy=zero3), in the order in which a
  /// forward pass runs them. training_step() and the other functions call each part as a function.
  virtual std::vector<Unit> units() { return {}; }

  /// Returns the names of the parameters that stay fp32 if the others are cast ("bf16-true"): the parameters of normalisation layers.
  virtual std::vector<std::string> norm_parameters() { return {}; }

  /// Returns the classes of the layers by path ("layer1.0.conv1" -> "Conv2d"; "" is the network), for reports and dumps. A missing layer is
  /// named after its operator.
  virtual std::map<std::string, std::string> module_types() { return {}; }

  /// Returns the names of the metrics in addition to the loss, such as "acc1".
  virtual std::vector<std::string> metric_names() const { return {}; }
  /// Returns the sum of each metric over a batch: fp32 [number of metrics] on the device, without gradients. The sums are added over
  /// batches and ranks, and divided by the summed `Batch::size`. A task whose metrics are means over something else (tokens, detected
  /// objects) returns [2, number of metrics]: the sums, and the counts by which they are divided instead.
  virtual at::Tensor metric_sums(const StepOutput& /*output*/, const Batch& /*batch*/) { return {}; }

  /// Returns further metrics that follow from a mean loss, such as a perplexity, with the same names in the same order for every loss. They
  /// are computed from the mean loss of a step, an epoch or a validation, because a mean of their values would be wrong.
  virtual Scalars metrics_of_loss(double /*loss*/) const { return {}; }

  /// Returns whether training_step() and metric_sums() queue the same work for every batch of a shape: the host reads no value of the
  /// device, draws no random number and makes no decision that differs between steps. A run may then capture them (trainer.cuda_graphs).
  virtual bool capturable() const { return false; }

  /// Returns random targets for a batch of random inputs, for measurements without data. Error(Usage) for a task that cannot make them.
  virtual at::Tensor example_target(const Batch& inputs) const;

  /// Sets training mode (dropout, batch statistics) or evaluation mode.
  virtual void set_training(bool on) = 0;
  /// Moves parameters and buffers.
  virtual void to(c10::Device device) = 0;
};

/// A task with several losses, each of which trains a part of the parameters with an optimizer of its own: a generator and a discriminator,
/// an actor and a critic. In each window the optimizers step one after the other over the same micro-batches. Each has its own passes,
/// gradients, loss scale, clipping and decision to skip, like the single optimizer of any other task; TrainStep describes the order. The
/// optimizer NAME updates the parameters "NAME.*". While it steps, no other parameter requires a gradient.
class AlternatingTask : public Task {
 public:
  /// Returns the names of the optimizers in the order of their steps, the same at every call: letters, digits and '_'.
  virtual std::vector<std::string> optimizers() const = 0;
  /// Returns the loss of this optimizer on one batch, under the conditions of training_step() or, in a validation, of validation_step().
  virtual StepOutput loss_of(const std::string& optimizer, const ForwardContext& context) = 0;
  /// Returns the number of windows from one step of this optimizer to the next, for example 5 for the generator of a Wasserstein GAN. It
  /// must be 1 for the first optimizer.
  virtual int64_t every(const std::string& /*optimizer*/) const { return 1; }

  /// Returns the sum of all losses, with the weight of the first loss, for validations and reports. The outputs are those of each
  /// loss_of(), each followed by its loss as "NAME_loss". If several outputs have the same name, Outputs::at() returns the first one.
  StepOutput training_step(const ForwardContext& context) override;
  /// Returns "NAME_loss" for each optimizer. Override both functions to add metrics. A loss or metric that the outputs do not contain
  /// counts with 0 samples.
  std::vector<std::string> metric_names() const override;
  at::Tensor metric_sums(const StepOutput& output, const Batch& batch) override;
};

/// Returns the loss times weight / full_weight, in fp32 if it is in a lower precision. Returns the loss itself if the two weights are equal
/// or full_weight is 0.
at::Tensor share_of_window(const StepOutput& output, double full_weight);
/// Throws Error(Usage) unless the loss is one number, and the weight finite and at least 0.
void check_output(const StepOutput& output, const char* where);
/// Returns the names of a step's metrics in addition to the loss, in the order of reports: metric_names(), then those of metrics_of_loss().
std::vector<std::string> step_metric_names(const Task& task);
/// Returns the names of a validation's metrics: step_metric_names(), then those of EpochMetrics.
std::vector<std::string> all_metric_names(const Task& task);
/// Adds metrics_of_loss() to averages that begin with the loss; does nothing to an empty list.
void add_metrics_of_loss(const Task& task, Scalars& averages);
/// Returns metric_sums() as [2 x number of metrics]: the sums, then their counts, which are the batch's samples unless the task gives
/// counts. Undefined without metrics. Error(Usage) unless there is one number, or a sum and a count, for each of metric_names().
at::Tensor checked_metric_sums(Task& task, const StepOutput& output, const Batch& batch);

// Tasks whose loss compares samples with those of other ranks.

/// Additional base class of a Task that calls gathered() (nn/rank_gather.hpp) in its training_step(), equally often for every micro-batch.
/// In training over several ranks, the ForwardContext gives access to the other ranks. In validation it does not, so that the results of a
/// validation do not depend on the number of ranks.
class ComparesRanks {
 public:
  virtual ~ComparesRanks() = default;
};

}  // namespace npu_train
