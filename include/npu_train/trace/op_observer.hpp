/// Observes the operators that code runs, and the layer of each. libtorch's modules have no hooks in C++. A layer is therefore identified
/// by the parameter that an operator receives, or the forward declares it (layer_scope.hpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// A tensor that an operator receives.
struct SeenInput {
  at::Tensor value;
  std::string known;  ///< name of the watched tensor, if this is that tensor, or a view or cast of it; otherwise ""
};

/// An executed operator.
struct SeenOp {
  std::string name;                        ///< name without its namespace: "conv2d", "relu"
  std::string parameter;                   ///< name of the first watched parameter among its inputs ("layer1.0.conv1.weight"); may be empty
  const std::vector<c10::IValue>& inputs;  ///< arguments as the caller passed them, before autocast
  at::Tensor output;                       ///< the first output; undefined before the operator has run
  int64_t flops = 0;                       ///< FLOPs of convolutions, products and attention; a multiply-add counts as 2
  std::string library{};                   ///< namespace: "aten"
  std::string scope{};                     ///< path of the innermost enclosing declared layer; "" outside of all
  std::vector<at::Tensor> outputs{};       ///< all outputs
  std::vector<SeenInput> tensors{};        ///< tensors in `inputs`, in order, including those in lists; empty before the operator has run
  std::string overload{};                  ///< "Tensor" of aten::add.Tensor; "" for the unnamed overload
};

/// A run of a declared layer.
struct SeenLayer {
  std::string path;                 ///< names of the enclosing scopes and its own, joined by dots
  std::vector<at::Tensor> inputs;   ///< inputs that LayerScope received; empty if the layer only names the operators inside
  std::vector<at::Tensor> outputs;  ///< empty before the layer has ended, and after an exception
  bool names_value = false;         ///< true: a value that named_value() names, not a layer; the value is the only input and output
};

/// Returns whether SeenOp::flops counts operators with this name: convolutions, products and attention.
bool costs_flops(const std::string& name);

/// Returns whether the operator only changes the dtype or device of its first input, as autocast does with parameters.
bool is_cast(const SeenOp& op);

/// Receives the operators and layers. Its exceptions do not reach the model; OpObserver::error() returns them.
class OpListener {
 public:
  virtual ~OpListener() = default;
  /// Called before an operator runs, when inputs that it modifies still have their old content.
  virtual void op_begins(const SeenOp& /*op*/) {}
  virtual void op_ended(const SeenOp& op) = 0;
  virtual void layer_begins(const SeenLayer& /*layer*/) {}
  virtual void layer_ended(const SeenLayer& /*layer*/) {}
  /// Returns whether to report operators without results (in-place updates of lists) and operators of backward passes, too. For the latter,
  /// the listener is called in the calling thread on CPUs and in autograd's threads on other devices, but never in two threads at once.
  virtual bool sees_all() const { return false; }
  /// Reports that `whole`, a reported operator or a part of one, has called operator `part`. Both are full names, such as "conv2d",
  /// "add.Tensor", "npu_train::batch_norm_act". Called only if sees_parts() is true.
  virtual void part_seen(const std::string& /*whole*/, const std::string& /*part*/) {}
  virtual bool sees_parts() const { return false; }
};

/// In its scope, reports to the listener the operators of this thread and of the backward passes that the thread starts: those operators
/// that use a parameter or cost FLOPs, or all operators if `every` is true. If operators call others, only the outermost one is reported.
/// Operators that the listener runs are not reported. A thread can have only one OpObserver.
class OpObserver {
 public:
  OpObserver(const ParameterSet& parameters, OpListener& listener, bool every = false);
  /// Reports only operators that have ended.
  OpObserver(const ParameterSet& parameters, std::function<void(const SeenOp&)> on_op, bool every = false);
  ~OpObserver();
  /// Sets the name of this tensor, for example a buffer, in SeenOp::tensors. Unlike a parameter, the tensor does not determine the layer of
  /// an operator.
  void watch(const std::string& name, const at::Tensor& value);
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  /// Returns the first exception of the listener, which libtorch would discard; nullptr if none.
  std::exception_ptr error() const { return error_; }

 private:
  struct Context;
  struct Link;
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn);
  static void on_end(const at::RecordFunction& fn, at::ObserverContext* context);
  void begin(const at::RecordFunction& fn, Context& context);
  void end(const at::RecordFunction& fn, const Context& context);
  SeenOp describe(const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs) const;
  void report(const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs);
  struct Watched {
    std::string name;
    bool is_parameter;
  };
  const Watched* watched_in(const at::Tensor& input) const;
  bool follows_cast(const SeenOp& op);

  std::unique_ptr<OpListener> own_;  // used by the second constructor
  OpListener& listener_;
  std::unordered_map<const void*, Watched> watched_;              // watched tensors by storage and by tensor
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> casts_;  // casts in watched_; keeps their addresses from being reused
  bool every_;
  at::CallbackHandle handle_ = 0;
  std::mutex mutex_;  // parts of one backward pass may run in several threads
  // Full names of the reported operator and of its parts, by thread.
  std::unordered_map<std::thread::id, std::vector<std::string>> inside_;
  std::vector<std::string> scopes_;  // paths of the open layers
  std::exception_ptr error_;
  std::shared_ptr<Link> link_;
  c10::DebugInfoGuard guard_;
};

}  // namespace npu_train
