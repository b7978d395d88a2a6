/// The operators of one forward as a graph: which operator gives a value, and which operators read it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace npu_train::detail {

/// One operator that ran. Of operators that call others, the outermost.
struct GraphOp {
  c10::OperatorHandle op;
  std::vector<c10::IValue> args;     ///< tensors and options, in the order of the schema
  std::vector<c10::IValue> outputs;  ///< in the order of the schema
  std::vector<size_t> reads;         ///< values, one for each tensor among `args`, those of lists too
  std::vector<size_t> gives;         ///< values, one for each tensor among `outputs`
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
  bool is_result = false;         ///< the forward returns it
  const void* storage = nullptr;  ///< aliases have the same one
};

/// A recorded forward. Holds all its tensors, so that an address is one tensor.
class OpGraph {
 public:
  /// Runs `forward` once on this thread. Error(Device) as OpModeGuard.
  static OpGraph record(const std::function<at::Tensor()>& forward);

  const std::vector<GraphOp>& ops() const { return ops_; }
  const std::vector<GraphValue>& values() const { return values_; }

  /// The one operator that reads what `op` gives; -1 if there are none or several, or if the forward returns it.
  ptrdiff_t only_reader(size_t op) const;
  /// The position of the output of `giver` among the arguments of `reader`; -1 if it is none.
  int position(size_t reader, size_t giver) const;
  /// Operators that read memory. Views, through which others read, do not count.
  int64_t readers_of(const void* storage) const;

 private:
  class Recorder;
  std::vector<GraphOp> ops_;
  std::vector<GraphValue> values_;
};

}  // namespace npu_train::detail
