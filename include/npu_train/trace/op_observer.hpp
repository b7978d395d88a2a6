/// Sees the operators that a piece of code runs, with the layer that each belongs to: libtorch's modules have no hooks in C++, but an
/// operator receives its layer's parameter, and a forward may declare its layers (layer_scope.hpp).
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
  std::string known;  ///< name of the watched tensor that it is, or is a view or a cast of; "" for others
};

/// One operator.
struct SeenOp {
  std::string name;                        ///< without its namespace: "conv2d", "relu"
  std::string parameter;                   ///< name of the first watched parameter among its inputs ("layer1.0.conv1.weight"); may be empty
  const std::vector<c10::IValue>& inputs;  ///< as the caller gave them, above autocast
  at::Tensor output;                       ///< the first one; undefined before the operator ran
  int64_t flops = 0;                       ///< of convolutions, products and attention; a multiply-add is 2
  std::string library{};                   ///< its namespace: "aten"
  std::string scope{};                     ///< path of the innermost declared layer that it runs in; "" outside all
  std::vector<at::Tensor> outputs{};       ///< all of them
  std::vector<SeenInput> tensors{};        ///< among `inputs`, in order, those of lists too; empty before the operator ran
  std::string overload{};                  ///< "Tensor" of aten::add.Tensor; "" for the unnamed overload
};

/// One run of a declared layer.
struct SeenLayer {
  std::string path;                 ///< names of the scopes around it and its own, joined by dots
  std::vector<at::Tensor> inputs;   ///< as given to LayerScope; empty: it only names the operators that run in it
  std::vector<at::Tensor> outputs;  ///< empty before it ended, or when it ended by an exception
};

/// Whether SeenOp::flops counts operators of this name: convolutions, products and attention.
bool costs_flops(const std::string& name);

/// Whether the operator may only change the dtype or device of its first input, as autocast does with parameters.
bool is_cast(const SeenOp& op);

/// Receives the operators and layers. Its exceptions do not reach the model; OpObserver::error() returns them.
class OpListener {
 public:
  virtual ~OpListener() = default;
  /// Before an operator runs: the place to look at inputs that it changes.
  virtual void op_begins(const SeenOp& /*op*/) {}
  virtual void op_ended(const SeenOp& op) = 0;
  virtual void layer_begins(const SeenLayer& /*layer*/) {}
  virtual void layer_ended(const SeenLayer& /*layer*/) {}
  /// Whether operators that give nothing (updates of lists in place) and those of backward passes are shown too. The latter run in the
  /// thread of the call on CPUs, and in autograd's own elsewhere, from which the listener is called then; never from two at once.
  virtual bool sees_all() const { return false; }
  /// An operator runs that `whole` called: an operator that is shown, or a part of one. Full names, as "conv2d", "add.Tensor",
  /// "npu_train::batch_norm_act". Only if sees_parts() is true.
  virtual void part_seen(const std::string& /*whole*/, const std::string& /*part*/) {}
  virtual bool sees_parts() const { return false; }
};

/// While it lives, operators of this thread and of the backward passes that it starts are shown to the listener: those that use a parameter
/// or cost FLOPs, or all with `every`. Of operators that call others the outermost is shown. The listener may run operators, which are not
/// shown. One at a time on a thread.
class OpObserver {
 public:
  OpObserver(const ParameterSet& parameters, OpListener& listener, bool every = false);
  /// The same, for operators that ran alone.
  OpObserver(const ParameterSet& parameters, std::function<void(const SeenOp&)> on_op, bool every = false);
  ~OpObserver();
  /// Names this tensor in SeenOp::tensors too, for example a buffer. It does not assign the operators that receive it to a layer.
  void watch(const std::string& name, const at::Tensor& value);
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  /// The first exception that left the listener, which libtorch would swallow; nullptr when there was none.
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

  std::unique_ptr<OpListener> own_;  // of the second constructor
  OpListener& listener_;
  std::unordered_map<const void*, Watched> watched_;              // by storage
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> casts_;  // in watched_ too: no other storage takes their address meanwhile
  bool every_;
  at::CallbackHandle handle_ = 0;
  std::mutex mutex_;  // parts of one backward pass may run in several threads
  // Full names: of an operator that is shown as one, and of its parts.
  std::unordered_map<std::thread::id, std::vector<std::string>> inside_;
  std::vector<std::string> scopes_;  // paths
  std::exception_ptr error_;
  std::shared_ptr<Link> link_;
  c10::DebugInfoGuard guard_;
};

}  // namespace npu_train
