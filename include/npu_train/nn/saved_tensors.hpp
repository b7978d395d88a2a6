/// What autograd keeps for the backward pass, in your hands: torch.autograd.graph.saved_tensors_hooks, which C++ does not have.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace npu_train {

/// While it lives, every tensor that autograd saves on this thread goes through `pack` instead of being kept. `pack` returns a
/// function that is called when the backward pass needs the tensor; it must return one with the same shape, dtype and values. Regions nest:
/// only the innermost is active, and none inside `pack`.
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
/// Parameters and inputs that are saved come through it too. A saved tensor must not be changed in place before the backward pass.
/// `pack` gets tensors without history, so that what it keeps does not keep the graph.
class SavedTensorHooks {
 public:
  using Unpack = std::function<at::Tensor()>;
  /// The second argument: whether the tensor is a result of the operator that saves it, not an input.
  using Pack = std::function<Unpack(const at::Tensor&, bool)>;

  explicit SavedTensorHooks(Pack pack);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

  /// Saves `t` as autograd would now: through the innermost region of this thread, or by holding it.
  static Unpack save(const at::Tensor& t);

 private:
  friend struct HookedEngine;
  std::shared_ptr<const Pack> pack_;
  const SavedTensorHooks* outer_;
};

}  // namespace npu_train
