/// Hooks for tensors that autograd saves for the backward pass, like torch.autograd.graph.saved_tensors_hooks, which C++ lacks.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace npu_train {

/// In its scope, every tensor that autograd saves on this thread is passed to `pack` instead of being kept. `pack` returns a function that
/// the backward pass calls to get the tensor back; its result must have the same shape, dtype and values. Scopes nest: only the innermost
/// one is active, and inside `pack` none is.
///
///   int64_t bytes = 0;
///   {
///     npu_train::SavedTensorHooks count([&](const at::Tensor& t, bool) {
///       bytes += t.nbytes();
///       return [t] { return t; };
///     });
///     loss = loss_fn(model->forward(x), y);
///   }
///
/// `pack` also receives saved parameters and inputs. A saved tensor must not be changed in place before the backward pass. `pack` receives
/// detached tensors, so that keeping them does not keep the graph alive.
class SavedTensorHooks {
 public:
  using Unpack = std::function<at::Tensor()>;
  /// The second argument is true if the tensor is a result of the operator that saves it, false for an input.
  using Pack = std::function<Unpack(const at::Tensor&, bool)>;

  explicit SavedTensorHooks(Pack pack);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  /// Saves `t` as autograd would: through the innermost scope of this thread, or without a scope by keeping a reference.
  static Unpack save(const at::Tensor& t);

 private:
  friend struct HookedEngine;
  std::shared_ptr<const Pack> pack_;
  const SavedTensorHooks* outer_;
};

}  // namespace npu_train
