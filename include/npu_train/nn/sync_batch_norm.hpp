/// Batch normalisation by the batches of several processes: what torch.nn.SyncBatchNorm does, for the batch_norm of any module.
///
///   auto gather = [group](const at::Tensor& own) { return group->gather("batch_norm", own); };  // a ProcessGroup
///   const npu_train::SyncBatchNorm synced(gather);
///   loss = loss_fn(model->forward(x), y);  // the backward may run after the scope has ended
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace npu_train {

/// While it lives, each batch_norm of this thread that computes statistics (training mode) uses those of the samples of all ranks, and
/// moves its running statistics by them. Losses are as with data parallel training: the gradients of all ranks are those of the sum of
/// their losses. Scopes nest; the innermost one holds. checkpoint() repeats its function under the scope of its first call.
///
/// Every rank runs the same layers in the same order, also in the backward. Batches may have different sizes. The sums are added in the
/// order of ranks, in the dtype that the numbers come back in: all ranks have equal bits, but not those of one process with one large
/// batch. If they come back on the device, nothing waits for the host. Not for instance_norm, and not for code that calls native_batch_norm
/// or cudnn_batch_norm itself.
class SyncBatchNorm {
 public:
  /// Gives `own` [n] to the other ranks, and returns those of every rank that has a batch, [ranks, n], in the order of ranks; on any
  /// device, in fp32 or fp64. Called in the forward pass, with 1 + 2C numbers for C channels, and in the backward pass, with 2C; those are
  /// on the input's device, in fp64 if that is a CPU or a CUDA device, else in fp32.
  using Gather = std::function<at::Tensor(const at::Tensor& own)>;

  explicit SyncBatchNorm(Gather gather);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  /// What a thread normalises by, to do the same later or in another thread.
  class State {
   public:
    /// As it is now.
    State();
    class Scope;

   private:
    std::shared_ptr<const Gather> gather_;
  };

 private:
  class Mode;
  std::unique_ptr<Mode> mode_;
};

/// A SyncBatchNorm with the ranks of `state`, if it has any.
class SyncBatchNorm::State::Scope {
 public:
  explicit Scope(const State& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::unique_ptr<SyncBatchNorm> synced_;
};

}  // namespace npu_train
