/// The operators of a forward as a graph: which operator produces a value, which operators read it, and which values the forward returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/parameter_set.hpp"

namespace npu_train::detail {

/// An executed operator. If operators call others, the outermost one is recorded, unless it was split.
struct GraphOp {
  c10::OperatorHandle op;
  std::vector<c10::IValue> args;     ///< tensors and options, in the order of the schema
  std::vector<c10::IValue> outputs;  ///< in the order of the schema
  std::vector<size_t> reads;         ///< one value per tensor in `args`, including tensors in lists
  std::vector<size_t> gives;         ///< one value per tensor in `outputs`, including tensors in lists
  std::string layer;                 ///< path of the enclosing declared layers (nn/layer_scope.hpp); "" outside of all

  /// Returns "relu" for aten::relu and aten::relu_.
  std::string name() const;
  /// Returns whether argument `i` is a defined tensor.
  bool tensor(size_t i) const { return i < args.size() && args[i].isTensor() && args[i].toTensor().defined(); }
  /// Returns whether the operator gives exactly one tensor.
  bool gives_one() const { return outputs.size() == 1 && outputs[0].isTensor() && gives.size() == 1; }
  /// Returns whether the only output uses the memory at `storage` (storage_of): the tensor there, or a view of it.
  bool gives_view_of(const void* storage) const;
};

/// One content of a tensor. A tensor that is changed in place has several values, one after the other.
struct GraphValue {
  static constexpr ptrdiff_t kOutside = -1;
  ptrdiff_t given_by = kOutside;  ///< index of the producing operator; kOutside for inputs, parameters and constants
  std::vector<size_t> readers{};  ///< indices of the operators that read it, in order; an operator that reads it twice occurs twice
  const void* storage = nullptr;  ///< equal for tensors that share memory
  std::string name{};             ///< name of the parameter or buffer whose initial content this is; "" for others
};

/// A tensor that the forward returns.
struct GraphResult {
  std::string name;   ///< name in Outputs
  at::Tensor tensor;  ///< the tensor at the time of recording
  size_t value;       ///< index of its value, which is from outside (kOutside) if the forward returns an input, a parameter or a constant
};

/// Returns whether to record a composite operator as its parts.
using SplitRule = std::function<bool(const c10::OperatorHandle&)>;

/// A recorded forward. It keeps all its tensors alive, so that addresses stay unique.
class OpGraph {
 public:
  /// Runs `forward` once on this thread. A value from outside gets the name of the first tensor in `parameters`, then `buffers`, that is
  /// the same tensor or has the same elements (same_elements). A composite operator for which `split` returns true is recorded as its
  /// parts. Error(Usage) if a result is undefined; Error(Device) as in OpModeGuard.
  static OpGraph record(const std::function<Outputs()>& forward, const ParameterSet& parameters = {},
                        const std::vector<std::pair<std::string, at::Tensor>>& buffers = {}, const SplitRule& split = {});

  const std::vector<GraphOp>& ops() const { return ops_; }
  const std::vector<GraphValue>& values() const { return values_; }
  /// Results of the forward, in its order. Several may have the same value.
  const std::vector<GraphResult>& results() const { return results_; }
  /// Returns whether the forward returns the value.
  bool is_result(size_t value) const;

  /// Returns the only operator that reads the result of `op`; -1 if there are none or several, or if the forward returns the result.
  ptrdiff_t only_reader(size_t op) const;
  /// Returns the index of the argument of `reader` that is the only output of `giver`; -1 if there is none, or if `giver` has several
  /// outputs.
  int position(size_t reader, size_t giver) const;
  /// Counts the operators that read this memory. Creating a view does not count.
  int64_t readers_of(const void* storage) const;

 private:
  class Recorder;
  std::vector<GraphOp> ops_;
  std::vector<GraphValue> values_;
  std::vector<GraphResult> results_;
};

}  // namespace npu_train::detail
