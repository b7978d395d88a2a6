/// Dumps the values of a training run, layer by layer, in the layout of Ascend's msprobe (dump.json, stack.json, construct.json and
/// dump_tensor_data/ under stepN/rankR), so that `npu_tool compare` and msprobe can report where two runs first differ.
///
/// In a configuration: section `dump`. In a loop of your own:
///
///   npu_train::Dumper dumper({.level = "module", .steps = {"0", "4-6"}, .dir = "dump"}, npu_train::dumped_model(*net));
///   for (...) {
///     dumper.start();                  // begins to observe the forward pass of this thread
///     at::Tensor loss = ...;
///     dumper.loss(loss);               // ends the forward pass
///     loss.backward();
///     dumper.stop();                   // dumps the gradients of the parameters, before they are clipped
///     optimizer.step();
///     dumper.step();                   // completes the files
///   }
///
/// Layers are found without changes to the model. An operator that receives a parameter belongs to the layer of that parameter. The blocks
/// of a Model, and the scopes that a forward pass declares (nn/layer_scope.hpp), are layers, too. Three things are not observed: layers
/// that have no parameters and are not declared (their operators are observed at level op or mix), a second backward pass, and operators in
/// threads that the model starts. If a value feeds several layers, each layer shows its own share of the value's gradient, as in msprobe;
/// the shares add up to the gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/core/config_table.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

// The content of a dump of a training run: section `dump` of a configuration, and the options of a Dumper.

/// An option that Ascend's msprobe has as well means the same here; a configuration also accepts most of msprobe's names. All random draws
/// depend only on `seed` and names, so that two runs select the same calls.
struct DumpOptions {
  /// module (L0): layers; op (L1): operators; mix: both, with operators under their layers; debug: values that the program names
  /// (nn/layer_scope.hpp, Dumper::save)
  std::string level = "module";
  std::string task = "statistics";   ///< statistics | tensor: also the values | overflow_check: only non-finite tensors, with their values
  std::vector<std::string> steps{};  ///< windows, from 0: "0", "4-6"; empty: all
  std::vector<std::string> scope{};  ///< [first, last]: from a call that matches `first` to the end of the next one that matches `last`
  std::vector<std::string> list{};   ///< names or parts of names, "*" matches anything: "layer1", "*.conv2", "layer1.*"; empty: all
  std::vector<int64_t> ranks{};      ///< empty: all
  std::vector<std::string> data_mode{};  ///< any of forward, backward, input, output, parameters_grad, optimizer; empty: all
  double sample = 1.0;                   ///< fraction of layers, drawn by name and seed
  double sample_elements = 1.0;          ///< task tensor: fraction of the elements of each tensor, drawn by seed
  int64_t seed = 0;                      ///< seed of both samples
  std::string summary = "statistics";    ///< statistics: max, min, mean and L2 norm | crc32: only the checksum of the bytes
  std::string format = "pt";             ///< task tensor: pt (torch.save) | npy (bf16 as fp32)
  bool async = true;                     ///< task tensor: a separate thread writes, with at most 512 MiB queued
  std::string dir{};                     ///< "": `dump` in the run's folder, or in the working directory
  static const ConfigTable<DumpOptions>& config_table();
};

/// Ranges of steps, as written in DumpOptions::steps.
class StepRanges {
 public:
  /// Error(Usage) unless each text is "N" or "N-M" with N <= M.
  explicit StepRanges(const std::vector<std::string>& texts);
  bool contains(int64_t step) const;
  /// Returns the given ranges that contain no step from `first` to `last`.
  std::vector<std::string> outside(int64_t first, int64_t last) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};

/// Whether `name` matches `pattern`: "*" matches any text; a pattern without "*" matches any part of the name.
bool name_matches(const std::string& name, const std::string& pattern);

/// Whether a call of a dump matches `pattern`. Its `name` may contain the direction and the number
/// ("Module.layer1.0.conv1.Conv2d.forward.0") or omit them. A pattern with "*" may match the complete name, the name without "Module.", or
/// only the layer's path ("layer1.*", "*.conv1").
bool call_matches(const std::string& name, const std::string& pattern);

class Optimizer;
class Precision;
class Task;

/// The facts about a model that a dump needs. A DumpedModel shares the model's tensors.
struct DumpedModel {
  ParameterSet parameters{};
  std::vector<std::pair<std::string, at::Tensor>> buffers{};
  std::map<std::string, std::string> types{};  ///< class name by path of the layer; if missing, it is derived from the layer's operator
};
DumpedModel dumped_model(const torch::nn::Module& module);
DumpedModel dumped_model(Task& task);

/// Writes the steps that `options` select; every other step costs one comparison. Not thread-safe, except that gradients may arrive from
/// other threads. Errors of the disk (Error(Checkpoint)) and of options (Error(Usage)) are thrown where they occur.
class Dumper : public StepObserver {
 public:
  /// `facts` are recorded in dump.json. Runs that differ in "device", "precision", "fused_kernels", "memory_format" or "cpu_low_precision"
  /// may differ by rounding, so a comparison uses these facts. "fused_kernels" must be "false" if no fused kernel runs, whatever the model
  /// requests. A different "gradient_clip" ("none", "norm 1") may explain different updates. Error(Usage) for options out of range and if
  /// `dir` is a file.
  Dumper(DumpOptions options, DumpedModel model, int rank = 0, std::map<std::string, std::string> facts = {});
  ~Dumper() override;

  /// Also dumps the learning rate, the weights after the update, the optimizer's state and the loss scale of each step, and the gradients
  /// of fp32 masters if there are any. Both arguments must outlive the dumper; `precision` may be nullptr.
  void watch(const Optimizer& optimizer, const Precision* precision = nullptr);

  /// Observes the operators of this thread until loss() or stop(). Another call within a step (micro-batches, two losses) continues the
  /// step.
  void start();
  /// Dumps the loss, or one of several losses, and ends the forward pass. Later operators belong to the backward pass and the loop.
  void loss(const at::Tensor& loss);
  /// Dumps the current gradients of the parameters. Another call within a step dumps them again.
  void stop();
  /// Dumps a value at level debug, and nothing at other levels. Before loss(), the call has the effect of named_value()
  /// (nn/layer_scope.hpp): it also dumps the gradient if the value is the result of an operator. After loss(), the value is compared as a
  /// gradient without the loss scale.
  void save(const std::string& name, const at::Tensor& value);
  /// Ends the step.
  void step();
  /// Sets the number of the next step, which is initially 0.
  void set_step(int64_t step) { step_ = step; }

  /// Returns the folder that contains all dumped steps.
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
