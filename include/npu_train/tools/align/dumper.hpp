/// Dumps what a training run computes, layer by layer, in the layout of Ascend's msprobe (dump.json, stack.json, construct.json and
/// dump_tensor_data/ under stepN/rankR), so that `npu_tool compare` and msprobe can tell where two runs part.
///
/// In a configuration: section `dump`. In a loop of your own:
///
///   npu_train::Dumper dumper({.level = "module", .steps = {"0", "4-6"}, .dir = "dump"}, npu_train::dumped_model(*net));
///   for (...) {
///     dumper.start();                  // this thread's forward from here
///     at::Tensor loss = ...;
///     dumper.loss(loss);               // to here
///     loss.backward();
///     dumper.stop();                   // gradients of the parameters; before they are clipped
///     optimizer.step();
///     dumper.step();                   // the files are complete
///   }
///
/// Layers are known without changing the model: an operator that receives a parameter belongs to the parameter's layer, and a Model's
/// blocks and what a forward declares (nn/layer_scope.hpp) are layers too. Not seen: layers without parameters that nobody declares (their
/// operators are, at level op or mix), a second backward pass, and what runs in threads of the model's own.
/// Where a value feeds several layers, each shows its own share of the gradient, as msprobe does: their sum is that of the value.
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

/// What a dump must know of a model. Tensors are shared.
struct DumpedModel {
  ParameterSet parameters{};
  std::vector<std::pair<std::string, at::Tensor>> buffers{};
  std::map<std::string, std::string> types{};  ///< class by path; what is missing is named after its operator
};
DumpedModel dumped_model(const torch::nn::Module& module);
DumpedModel dumped_model(Task& task);

/// Writes the steps that `options` choose; every other step costs one comparison. One thread at a time; gradients may come from others.
/// Errors of the disk and of options are thrown where they are met: Error(Checkpoint), Error(Usage).
class Dumper : public StepObserver {
 public:
  /// `facts` are noted in dump.json. A comparison heeds "device", "precision", "fused_kernels", "memory_format" and "cpu_low_precision":
  /// runs that differ in one of them may differ in rounding. "fused_kernels" is "false" where none ran, whatever the model was asked for,
  /// and "gradient_clip" ("none", "norm 1") names clipping where two updates part. Error(Usage) for options out of range and a `dir` that
  /// is a file.
  Dumper(DumpOptions options, DumpedModel model, int rank = 0, std::map<std::string, std::string> facts = {});
  ~Dumper() override;

  /// Shows learning rate, weights after the update, state and loss scale of a step too; and the fp32 masters' gradients where there are
  /// some. Both must outlive the dumper; `precision` may be nullptr.
  void watch(const Optimizer& optimizer, const Precision* precision = nullptr);

  /// Observes what this thread computes until loss() or stop(). Again within a step (micro-batches, two losses): the step goes on.
  void start();
  /// Shows the loss, or one of several, and ends the forward: what follows it is the backward's and the loop's.
  void loss(const at::Tensor& loss);
  /// Shows the gradients of the parameters as they are now. Again within a step: once more.
  void stop();
  /// The step is over.
  void step();
  /// The number of the next step; 0 at first.
  void set_step(int64_t step) { step_ = step; }

  /// Folder of the whole dump.
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
