/// A network as the library uses it: module, forward function, and expected inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/input_spec.hpp"
#include "npu_train/base/outputs.hpp"
#include "npu_train/base/parameter_limit.hpp"
#include "npu_train/core/registry.hpp"
#include "npu_train/nn/unit.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

/// A part of a network that maps one tensor to one tensor: the unit of recomputation for activation checkpointing.
struct Block {
  std::string name;  ///< path of the module that it mainly runs ("layer1.0"), or a name such as "stem" or "head"
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<std::string> modules{};  ///< paths of all modules with parameters that it runs, if `name` is not the only one
};

/// The forward of a network: a function of a batch that returns Outputs, or of one tensor, the field "input", that returns a tensor.
class Forward {
 public:
  Forward() = default;
  template <class Fn>
  requires std::is_invocable_r_v<at::Tensor, Fn&, const at::Tensor&> Forward(Fn fn)  // NOLINT: a function is a Forward
      : of_tensor_(std::move(fn)) {}
  template <class Fn>
  requires(!std::is_invocable_r_v<at::Tensor, Fn&, const at::Tensor&> && std::is_invocable_r_v<Outputs, Fn&, const Batch&>)
      Forward(Fn fn)  // NOLINT
      : of_batch_(std::move(fn)) {}

  Outputs operator()(const Batch& batch) const;
  /// Calls a network with one input and returns its first output.
  at::Tensor operator()(const at::Tensor& input) const;
  /// Returns whether it is a function of one tensor.
  bool takes_tensor() const { return of_tensor_ != nullptr; }
  explicit operator bool() const { return of_tensor_ != nullptr || of_batch_ != nullptr; }
  bool operator==(std::nullptr_t) const { return !*this; }

 private:
  std::function<at::Tensor(const at::Tensor&)> of_tensor_;
  std::function<Outputs(const Batch&)> of_batch_;
};

/// A sequence that a decoder reads in pieces: maps the next tokens [batch, n] to their logits [batch, n, vocabulary]. It caches keys and
/// values of earlier pieces, so that each token is computed once. Used without gradients.
using Continuation = std::function<at::Tensor(const at::Tensor& tokens)>;

/// A network: module, forward and expectations. Copies share the module.
struct Model {
  std::string name{};
  std::shared_ptr<torch::nn::Module> module{};
  /// Maps inputs to outputs, under the caller's autocast and gradient mode.
  Forward forward{};
  /// The inputs of `forward`. Training does not need them, but tools that create batches do (benchmarks, summaries, plans).
  std::vector<InputSpec> inputs{};
  int64_t num_classes = 0;     ///< classes of a classifier, whose first output is logits [batch, num_classes]; 0: not a classifier
  std::string head{};          ///< path of the replaceable classifier ("fc"); "" if there is none
  std::string weights{};       ///< file to load before training; "": initial weights. Read by the engine, not by the factory.
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the tensors that fit
  std::vector<ParameterLimit> limits{};  ///< bounds that the engine's optimizer keeps
  bool capturable = false;               ///< `forward` queues the same work for every input of a shape, see Task::capturable
  /// The blocks whose composition is `forward`, in order; empty for a model without blocks.
  std::vector<Block> blocks{};
  /// Units of a network defined in code, in forward order.
  std::vector<Unit> units{};
  /// Starts an empty sequence of a decoder, whose logits equal those of `forward` for all tokens so far; empty for other models.
  std::function<Continuation()> start_sequence{};
};

/// Sets `forward` to run the blocks in order, each as a layer (layer_scope.hpp). They receive the first input; BlockInputs has the others.
Model chain_blocks(Model model);

/// Networks by their names in a configuration.
using ModelRegistry = Registry<Model>;

}  // namespace npu_train
