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
/// Layers are known without changing the model: an operator that receives a parameter belongs to the parameter's layer, and a Model's
/// blocks and the scopes that a forward declares (nn/layer_scope.hpp) are also layers. Not observed: undeclared layers without parameters
/// (their operators are, at level op or mix), a second backward pass, and operators in the model's own threads. If a value feeds several
/// layers, each shows its own share of the gradient, as in msprobe: their sum is the gradient of the value.
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

/// The facts about a model that a dump needs. Tensors are shared.
struct DumpedModel {
  ParameterSet parameters{};
  std::vector<std::pair<std::string, at::Tensor>> buffers{};
  std::map<std::string, std::string> types{};  ///< class by path; a missing one is named after its operator
};
DumpedModel dumped_model(const torch::nn::Module& module);
DumpedModel dumped_model(Task& task);

/// Writes the steps that `options` select; every other step costs one comparison. One thread at a time; gradients may come from others.
/// Errors of the disk and of options are thrown where they occur: Error(Checkpoint), Error(Usage).
class Dumper : public StepObserver {
 public:
  /// `facts` are recorded in dump.json. A comparison uses "device", "precision", "fused_kernels", "memory_format" and "cpu_low_precision":
  /// runs that differ in one of them may differ in rounding. "fused_kernels" is "false" if none ran, whatever the model requested,
  /// and "gradient_clip" ("none", "norm 1") explains different updates by clipping. Error(Usage) for options out of range and a `dir` that
  /// is a file.
  Dumper(DumpOptions options, DumpedModel model, int rank = 0, std::map<std::string, std::string> facts = {});
  ~Dumper() override;

  /// Also dumps learning rate, weights after the update, state and loss scale of a step; and the gradients of the fp32 masters if there are
  /// any. Both must outlive the dumper; `precision` may be nullptr.
  void watch(const Optimizer& optimizer, const Precision* precision = nullptr);

  /// Observes the operators of this thread until loss() or stop(). Called again within a step (micro-batches, two losses), it continues the
  /// step.
  void start();
  /// Dumps the loss, or one of several, and ends the forward: later operators belong to the backward and the loop.
  void loss(const at::Tensor& loss);
  /// Dumps the current gradients of the parameters. Called again within a step, it dumps them again.
  void stop();
  /// Ends the step.
  void step();
  /// The number of the next step; 0 at first.
  void set_step(int64_t step) { step_ = step; }

  /// Folder of the complete dump.
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
