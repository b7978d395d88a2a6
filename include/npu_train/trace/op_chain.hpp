/// Chains of operators of which each takes the result of the one before: what fuse() looks for in a recorded forward.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

/// What the first operator of a chain is.
enum class ChainKind { Conv, Linear, LayerNorm, Attention };

/// An operator with its arguments. `open` are the positions of those that differ from run to run: the result of the step before at `flow`
/// (-1 in the first step), and other activations.
struct ChainStep {
  c10::OperatorHandle op;
  std::vector<c10::IValue> args;
  std::vector<size_t> open;
  int flow = -1;

  std::string name() const { return op.schema().name(); }  ///< "aten::relu_"
  /// Whether a call is this step, but for what is open.
  bool matches(const c10::OperatorHandle& called, const c10::IValue* given) const;
};

/// Operators of a recorded forward, each the only reader of the one before.
struct OpChain {
  ChainKind kind = ChainKind::Conv;
  std::string layer;
  std::string pattern;
  std::vector<ChainStep> steps;
  at::Tensor weight;         ///< of the first step; undefined for attention
  bool only_reader = false;  ///< nothing else in the forward reads the weight, or what is stored with it

  /// The first step of that name, as "relu" for aten::relu and aten::relu_; nullptr if there is none.
  const ChainStep* find(const std::string& name) const;
  /// The activations that go in, in order: x, what is added; q, k^T, v.
  std::vector<at::Tensor> inputs() const;
  /// Computed by the operators themselves, with the recorded arguments.
  at::Tensor plain() const;
};

/// Runs `forward(example)` and gives the chains in it in the order of their first operators. `parameters` name the layers.
std::vector<OpChain> find_chains(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& example,
                                 const ParameterSet& parameters);

}  // namespace npu_train::detail
