/// Sees the operators that a piece of code runs, with the layer that each belongs to: libtorch's modules have no hooks in C++, but an
/// operator receives its layer's parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// One operator, after it ran.
struct SeenOp {
  std::string name;                        ///< without its namespace: "conv2d", "relu"
  std::string parameter;                   ///< name of the first watched parameter among its inputs ("layer1.0.conv1.weight"); may be empty
  const std::vector<c10::IValue>& inputs;  ///< as the caller gave them, above autocast
  at::Tensor output;                       ///< the first one
  int64_t flops = 0;                       ///< of convolutions, products and attention; a multiply-add is 2
};

/// While it lives, operators of this thread are shown to `on_op`: those that use a parameter or cost FLOPs, or all with `every`. Of
/// operators that call others the outermost is shown. `on_op` may run operators, which are not shown. One at a time on a thread.
class OpObserver {
 public:
  OpObserver(const ParameterSet& parameters, std::function<void(const SeenOp&)> on_op, bool every = false);
  ~OpObserver();
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  /// An exception left `on_op`; libtorch swallows it.
  bool failed() const { return failed_; }

 private:
  struct Context;
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn);
  static void on_end(const at::RecordFunction& fn, at::ObserverContext* context);
  void report(const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs);

  std::function<void(const SeenOp&)> on_op_;
  std::unordered_map<const void*, std::string> parameters_;  // by storage
  bool every_;
  at::CallbackHandle handle_ = 0;
  int inside_ = 0;  // depth of operations below one that is shown as a whole
  bool failed_ = false;
  OpObserver* before_;
};

}  // namespace npu_train
