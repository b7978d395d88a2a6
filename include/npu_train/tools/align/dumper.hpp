/// Dumps the values of a training run, layer by layer, in the layout of Ascend's msprobe (dump.json, stack.json, construct.json and
/// dump_tensor_data/ under stepN/rankR), so that `npu_tool compare` and msprobe can report where two runs first differ.
///
/// In a configuration: section `dump`. In a loop of your own:
///
///   npu_train::Dumper dumper({.level = "module", .steps = {"0", "4-6"}, .dir = "dump"}, npu_train::dumped_model(*net));
///   for (...) {
///     dumper.start();                  // begins to observe this thread's forward
///     at::Tensor loss = ...;
///     dumper.loss(loss);               // ends it
///     loss.backward();
///     dumper.stop();                   // gradients of the parameters; before they are clipped
///     optimizer.step();
///     dumper.step();                   // the files are complete
///   }
///
/// Layers are found without changes to the model: an operator that receives a parameter belongs to the parameter's layer, and a Model's
/// blocks and the scopes that a forward pass declares (nn/layer_scope.hpp) are layers, too. Not observed: undeclared layers without
/// parameters (only their operators, at level op or mix), a second backward pass, and operators in the model's own threads. If a value
/// feeds several layers, each shows its own share of the gradient, as in msprobe: their sum is the gradient of the value.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/tools/align/dump_options.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

class Optimizer;
class Precision;
class Task;

/// The facts about a model that a dump needs. It shares the model's tensors.
struct DumpedModel {
  ParameterSet parameters{};
  std::vector<std::pair<std::string, at::Tensor>> buffers{};
  std::map<std::string, std::string> types{};  ///< class name by path; without an entry, the layer is named after its operator
};
DumpedModel dumped_model(const torch::nn::Module& module);
DumpedModel dumped_model(Task& task);

/// Writes the steps that `options` select; every other step costs one comparison. Not thread-safe, except that gradients may arrive from
/// other threads. Errors of the disk and of options are thrown where they occur: Error(Checkpoint), Error(Usage).
class Dumper : public StepObserver {
 public:
  /// `facts` are recorded in dump.json. Runs that differ in "device", "precision", "fused_kernels", "memory_format" or "cpu_low_precision"
  /// may differ by rounding, so a comparison uses these facts. "fused_kernels" is recorded as "false" if none ran, whatever the model
  /// requested. "gradient_clip" ("none", "norm 1") may explain different updates. Error(Usage) for options out of range and if `dir` is a
  /// file.
  Dumper(DumpOptions options, DumpedModel model, int rank = 0, std::map<std::string, std::string> facts = {});
  ~Dumper() override;

  /// Also dumps the learning rate, the weights after the update, the optimizer's state and the loss scale of each step, and the gradients
  /// of fp32 masters if there are any. Both must outlive the dumper; `precision` may be nullptr.
  void watch(const Optimizer& optimizer, const Precision* precision = nullptr);

  /// Observes the operators of this thread until loss() or stop(). Another call within a step (micro-batches, two losses) continues the
  /// step.
  void start();
  /// Dumps the loss, or one of several, and ends the forward pass: later operators belong to the backward pass and the loop.
  void loss(const at::Tensor& loss);
  /// Dumps the current gradients of the parameters. Another call within a step dumps them again.
  void stop();
  /// Dumps a value at level debug, and nothing at other levels. Before loss(), it is like named_value() (nn/layer_scope.hpp), with its
  /// gradient if the value is the result of an operator. After loss(), the value is compared as a gradient without the loss scale.
  void save(const std::string& name, const at::Tensor& value);
  /// Ends the step.
  void step();
  /// Sets the number of the next step; 0 at first.
  void set_step(int64_t step) { step_ = step; }

  /// The folder of the complete dump.
  const std::string& dir() const { return options_.dir; }

  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;
  void on_loss(const at::Tensor& loss, int64_t attempt, int micro_batch) override;

 private:
  struct Impl;
  std::map<std::string, std::string> own_facts() const;
  bool begin_step();
  void observe();
  void stop_observing();
  void finish_step();

  DumpOptions options_;
  DumpedModel model_;
  int64_t step_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
