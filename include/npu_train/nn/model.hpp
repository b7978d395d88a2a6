/// A network as the rest of the library takes it: the module, how to call it, and what it expects.
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

/// A piece of a network that takes one tensor and returns one: the unit that activation checkpointing recomputes.
struct Block {
  std::string name;  ///< path of the module that it mainly runs ("layer1.0"), otherwise a name such as "stem" or "head"
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<std::string> modules{};  ///< paths of all modules with parameters that it runs, where `name` is not the only one
};

/// How a network is called: a function of a batch that returns its outputs, or of one tensor, the field "input", that returns another one.
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
  /// For a network with one input: the first output for it.
  at::Tensor operator()(const at::Tensor& input) const;
  /// Whether it is a function of one tensor.
  bool takes_tensor() const { return of_tensor_ != nullptr; }
  explicit operator bool() const { return of_tensor_ != nullptr || of_batch_ != nullptr; }
  bool operator==(std::nullptr_t) const { return !*this; }

 private:
  std::function<at::Tensor(const at::Tensor&)> of_tensor_;
  std::function<Outputs(const Batch&)> of_batch_;
};

/// A sequence that a decoder reads piece by piece: the next tokens [batch, n] to their logits [batch, n, vocabulary]. It keeps what the
/// earlier pieces gave (keys and values), so that each token is computed once. Used without gradients.
using Continuation = std::function<at::Tensor(const at::Tensor& tokens)>;

/// A network: module, call and expectations. Copies share the module.
struct Model {
  std::string name{};
  std::shared_ptr<torch::nn::Module> module{};
  /// Inputs to outputs, under whatever autocast and gradient mode the caller has set.
  Forward forward{};
  /// What `forward` accepts. Training does not need it; tools that make batches of their own do (benchmarks, summaries, plans).
  std::vector<InputSpec> inputs{};
  int64_t num_classes = 0;               ///< of a classifier, whose first output is logits [batch, num_classes]; 0: none
  std::string head{};                    ///< path of the classifier ("fc"); "" when there is none to replace
  std::string weights{};                 ///< file to load before training; "" starts fresh. Read by the engine, not by the factory.
  bool weights_strict = true;            ///< weights of another network are an error; false loads the tensors that fit
  std::vector<ParameterLimit> limits{};  ///< bounds that the engine's optimizer keeps
  bool capturable = false;               ///< `forward` queues the same work for every input of a shape, see Task::capturable
  /// The same computation as `forward`, cut into its blocks in order; empty for a model that is one piece.
  std::vector<Block> blocks{};
  /// Of a network given in code, in the order in which `forward` calls them.
  std::vector<Unit> units{};
  /// Of a decoder: an empty sequence. Its logits are those of `forward` for all tokens up to then; nothing for other models.
  std::function<Continuation()> start_sequence{};
};

/// Fills `forward` with the blocks in order, each a layer (layer_scope.hpp). The first input enters them; BlockInputs has the others.
Model chain_blocks(Model model);

/// The networks that a configuration can name.
using ModelRegistry = Registry<Model>;

}  // namespace npu_train
