/// Chains of operators, each of which consumes the result of the previous one: the candidates for fuse() in a recorded forward.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

/// Kind of the first operator of a chain.
enum class ChainKind { Conv, Linear, LayerNorm, Attention };

/// An operator with its arguments. `open` lists the positions of arguments that vary between runs: the result of the previous step at
/// `flow` (-1 in the first step), and other activations.
struct ChainStep {
  c10::OperatorHandle op;
  std::vector<c10::IValue> args;
  std::vector<size_t> open;
  int flow = -1;

  std::string name() const { return op.schema().name(); }  ///< "aten::relu_"
  /// Returns whether a call equals this step in all arguments except the open ones.
  bool matches(const c10::OperatorHandle& called, const c10::IValue* given) const;
};

/// Operators of a recorded forward, each the only reader of the previous one's result.
struct OpChain {
  ChainKind kind = ChainKind::Conv;
  std::string layer;
  std::string pattern;
  std::vector<ChainStep> steps;
  at::Tensor weight;         ///< weight of the first step; undefined for attention
  bool only_reader = false;  ///< no other operator of the forward reads the weight or its storage

  /// Returns the first step with this name ("relu" for aten::relu and aten::relu_); nullptr if there is none.
  const ChainStep* find(const std::string& name) const;
  /// Returns the input activations, in order: x and added tensors; for attention q, k^T and v.
  std::vector<at::Tensor> inputs() const;
  /// Runs the operators themselves with the recorded arguments.
  at::Tensor plain() const;
};

/// Runs `forward(example)` and returns its chains in the order of their first operators. The names of the layers come from `parameters`.
std::vector<OpChain> find_chains(const std::function<at::Tensor(const at::Tensor&)>& forward, const at::Tensor& example,
                                 const ParameterSet& parameters);

}  // namespace npu_train::detail
