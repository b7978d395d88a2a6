/// A network as the library uses it: module, forward function and description of its inputs.
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
#include "npu_train/base/forward_context.hpp"
#include "npu_train/base/input_spec.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/registry.hpp"
#include "npu_train/nn/unit.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

/// The forward of a block: a function of one tensor, or of the context of the pass and the tensor. The context has the other inputs of the
/// network and the values of earlier blocks, and receives additional outputs.
class BlockForward {
 public:
  BlockForward() = default;
  template <class Fn>
  requires std::is_invocable_r_v<at::Tensor, Fn&, const ForwardContext&, const at::Tensor&> BlockForward(
      Fn fn)  // NOLINT: a function is one
      : call_(std::move(fn)) {}
  template <class Fn>
  requires(!std::is_same_v<Fn, BlockForward> && std::is_invocable_r_v<at::Tensor, Fn&, const at::Tensor&>) BlockForward(Fn fn)  // NOLINT
      : call_([fn = std::move(fn)](const ForwardContext&, const at::Tensor& x) mutable { return fn(x); }) {}

  at::Tensor operator()(const ForwardContext& context, const at::Tensor& x) const { return call_(context, x); }

 private:
  std::function<at::Tensor(const ForwardContext&, const at::Tensor&)> call_;
};

/// A part of a network that maps one tensor to one tensor: the unit of recomputation for activation checkpointing.
struct Block {
  std::string name;  ///< path of the module that it mainly runs ("layer1.0"), or a name such as "stem" or "head"
  BlockForward forward;
  std::vector<std::string> modules{};  ///< paths of all modules with parameters that it runs, if `name` is not the only one
};

/// The forward of a network: either a function of a Batch or of a ForwardContext that returns Outputs, or a function of one tensor, the
/// field "input", that returns a tensor.
class Forward {
 public:
  Forward() = default;
  template <class Fn>
  requires std::is_invocable_r_v<at::Tensor, Fn&, const at::Tensor&> Forward(Fn fn)  // NOLINT: a function is a Forward
      : of_tensor_(std::move(fn)) {}
  template <class Fn>
  requires(!std::is_invocable_r_v<at::Tensor, Fn&, const at::Tensor&> && std::is_invocable_r_v<Outputs, Fn&, const ForwardContext&>)
      Forward(Fn fn)  // NOLINT
      : of_context_(std::move(fn)) {}
  template <class Fn>
  requires(!std::is_invocable_r_v<at::Tensor, Fn&, const at::Tensor&> && !std::is_invocable_r_v<Outputs, Fn&, const ForwardContext&> &&
           std::is_invocable_r_v<Outputs, Fn&, const Batch&>) Forward(Fn fn)  // NOLINT
      : of_context_([fn = std::move(fn)](const ForwardContext& context) { return fn(context.batch()); }) {}

  Outputs operator()(const ForwardContext& context) const;
  /// Calls a network with one input and returns its first output.
  at::Tensor operator()(const at::Tensor& input) const;
  /// Returns whether the forward is a function of one tensor.
  bool takes_tensor() const { return of_tensor_ != nullptr; }
  explicit operator bool() const { return of_tensor_ != nullptr || of_context_ != nullptr; }
  bool operator==(std::nullptr_t) const { return !*this; }

 private:
  std::function<at::Tensor(const at::Tensor&)> of_tensor_;
  std::function<Outputs(const ForwardContext&)> of_context_;
};

/// A sequence that a decoder reads in pieces: maps the next tokens [batch, n] to their logits [batch, n, vocabulary]. It caches keys and
/// values of earlier pieces, so that each token is computed once. Use it without gradients.
using Continuation = std::function<at::Tensor(const at::Tensor& tokens)>;

/// A network: module, forward function and properties. Copies share the module.
struct Model {
  std::string name{};
  std::shared_ptr<torch::nn::Module> module{};
  /// Maps inputs to outputs, under the caller's autocast and gradient mode.
  Forward forward{};
  /// The inputs of `forward`. Training does not need them, but tools that create batches do (benchmarks, summaries, plans).
  std::vector<InputSpec> inputs{};
  int64_t num_classes = 0;     ///< classes of a classifier, whose first output is logits [batch, num_classes]; 0: not a classifier
  std::string head{};          ///< path of the classifier layer, which can be replaced ("fc"); "" if there is none
  std::string weights{};       ///< file to load before training; "": initial weights. Read by the engine, not by the factory.
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the tensors that fit
  std::vector<ParameterLimit> limits{};  ///< bounds of parameters that the engine's optimizer enforces
  bool capturable = false;               ///< `forward` queues the same work for every input of a shape, see Task::capturable
  /// The blocks whose composition is `forward`, in order; empty for a model without blocks.
  std::vector<Block> blocks{};
  /// Units of a network defined in code, in forward order.
  std::vector<Unit> units{};
  /// Starts an empty sequence, for a decoder. The logits of each piece equal those of `forward` for all tokens so far. Empty for other
  /// models.
  std::function<Continuation()> start_sequence{};
  /// Starts sequences of different lengths in one batch. `padding` is int64 [batch]: the first padding[i] tokens of row i are not part of
  /// its sequence, and their logits have no meaning. Empty for a model that continues one sequence at a time.
  std::function<Continuation(const at::Tensor& padding)> start_batch{};
  /// true: a sample may consist of several documents (data.packing). `forward` separates them by the "position_ids" of the batch, int64
  /// [batch, tokens], which are 0 for the first token of each document. Set it before chain_blocks(), so that the blocks receive the batch.
  bool packs_documents = false;
};

/// Sets `forward` to run the blocks in order, each as a layer (layer_scope.hpp). The first block receives the first input;
/// ForwardContext::get() returns the others.
Model chain_blocks(Model model);

/// Networks by the names that a configuration uses.
using ModelRegistry = Registry<Model>;

}  // namespace npu_train
