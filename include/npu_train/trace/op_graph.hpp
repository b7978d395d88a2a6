/// The operators of one forward as a graph: which operator gives a value, which operators read it, and which values the forward returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/outputs.hpp"
#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

/// One operator that ran. Of operators that call others, the outermost, unless it was split.
struct GraphOp {
  c10::OperatorHandle op;
  std::vector<c10::IValue> args;     ///< tensors and options, in the order of the schema
  std::vector<c10::IValue> outputs;  ///< in the order of the schema
  std::vector<size_t> reads;         ///< values, one for each tensor among `args`, those of lists too
  std::vector<size_t> gives;         ///< values, one for each tensor among `outputs`, those of lists too
  std::string layer;                 ///< path of the declared layers (nn/layer_scope.hpp) around it; "" outside all

  /// "relu" of aten::relu and aten::relu_.
  std::string name() const;
  /// Whether argument `i` is a defined tensor.
  bool tensor(size_t i) const { return i < args.size() && args[i].isTensor() && args[i].toTensor().defined(); }
  /// Whether it gives one tensor, and nothing else.
  bool gives_one() const { return outputs.size() == 1 && outputs[0].isTensor() && gives.size() == 1; }
  /// Whether its one output is in the memory at `storage` (storage_of): then it is a view of a tensor there, or that tensor.
  bool gives_view_of(const void* storage) const;
};

/// One content of a tensor. A tensor that operators change in place holds one value after the other.
struct GraphValue {
  static constexpr ptrdiff_t kOutside = -1;
  ptrdiff_t given_by = kOutside;  ///< index of an operator; kOutside for inputs, parameters and constants
  std::vector<size_t> readers{};  ///< indices of operators, in order; one that reads it twice is there twice
  const void* storage = nullptr;  ///< aliases have the same one
  std::string name{};             ///< of the parameter or buffer whose content before the forward it is; "" for others
};

/// A tensor that the forward returns.
struct GraphResult {
  std::string name;   ///< as in Outputs
  at::Tensor tensor;  ///< as it was recorded
  size_t value;       ///< one from outside if the forward returns an input, a parameter or a constant
};

/// Whether a composed operator is recorded as its parts.
using SplitRule = std::function<bool(const c10::OperatorHandle&)>;

/// A recorded forward. Holds all its tensors, so that an address is one tensor.
class OpGraph {
 public:
  /// Runs `forward` once on this thread. Values that come from outside are named if they are one of `parameters` or `buffers`: the same
  /// tensor, or one with the same elements (same_elements). Of two names for the same elements, the first is used, a parameter's before a
  /// buffer's. Of an operator that libtorch composes of others, those are recorded instead if `split` returns true for it.
  /// Error(Usage) if a result is undefined; Error(Device) as OpModeGuard.
  static OpGraph record(const std::function<Outputs()>& forward, const ParameterSet& parameters = {},
                        const std::vector<std::pair<std::string, at::Tensor>>& buffers = {}, const SplitRule& split = {});

  const std::vector<GraphOp>& ops() const { return ops_; }
  const std::vector<GraphValue>& values() const { return values_; }
  /// What the forward returned, in its order. Several may be one value.
  const std::vector<GraphResult>& results() const { return results_; }
  /// Whether the forward returns the value.
  bool is_result(size_t value) const;

  /// The one operator that reads what `op` gives; -1 if there are none or several, or if the forward returns it.
  ptrdiff_t only_reader(size_t op) const;
  /// The position of the one output of `giver` among the arguments of `reader`; -1 if it is none, or if `giver` gives several.
  int position(size_t reader, size_t giver) const;
  /// Operators that read memory. Views, through which others read, do not count.
  int64_t readers_of(const void* storage) const;

 private:
  class Recorder;
  std::vector<GraphOp> ops_;
  std::vector<GraphValue> values_;
  std::vector<GraphResult> results_;
};

}  // namespace npu_train::detail
