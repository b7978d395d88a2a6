/// The argument of a forward pass: the batch, and the data that a pass needs in addition to the tensor that flows through the blocks of a
/// network. TrainStep creates a context for each micro-batch and passes it to the task. The task passes it to its model, and the model to
/// its blocks:
///
///   at::Tensor embed(const npu_train::ForwardContext& context, const at::Tensor& tokens) {
///     context.put("visible", mask_of(tokens));
///     return embedding->forward(tokens);
///   }
///   at::Tensor block(const npu_train::ForwardContext& context, const at::Tensor& x) {
///     return attention->forward(x, context.get("visible"));
///   }
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"

namespace npu_train {

/// A handle: all copies refer to the same pass. A copy can be kept for a recomputation of the pass in the backward pass.
class ForwardContext {
 public:
  /// The ranks that compute the same round of micro-batches.
  struct Ranks {
    /// Sends numbers to the other ranks and returns the numbers of all ranks, in rank order. The entry of a rank without a batch in this
    /// round is empty.
    std::function<std::vector<std::vector<double>>(const std::vector<double>& own)> gather;
    size_t rank = 0;  ///< index of this rank
  };

  ForwardContext() : ForwardContext(Batch()) {}
  ForwardContext(Batch batch, uint64_t draw_key = 0, std::shared_ptr<const Ranks> ranks = nullptr);  // NOLINT: a batch starts a pass

  const Batch& batch() const { return *batch_; }
  /// Key of the random numbers that a task draws for this micro-batch. It depends only on the seed, the attempt, and the number of the
  /// micro-batch over all ranks, so N ranks draw the same numbers as a single process.
  uint64_t draw_key() const { return draw_key_; }
  /// Returns the ranks with which the pass communicates, for gathered() (nn/rank_gather.hpp). nullptr if there are none.
  const Ranks* ranks() const { return ranks_.get(); }
  /// Returns the context of the same pass over another batch.
  ForwardContext with(Batch batch) const;

  /// Returns the value that a block has put, or else the field of the batch. Undefined if neither exists, because every input of a network
  /// except the first is optional.
  at::Tensor get(const std::string& name) const;
  /// Sets a value for the later blocks of the network. A recomputed block must put the same value again.
  void put(const std::string& name, at::Tensor value) const;
  /// Adds an output of the network. If blocks add outputs, the network returns these, in this order, instead of the last block's result.
  /// Has no effect during a recomputation.
  void give(const std::string& name, at::Tensor value) const;

  /// Returns the context for the blocks of one network. Values set with put() are visible only in this context. Outputs added with give()
  /// are appended to `outputs` as long as that list exists.
  ForwardContext of_network(const std::shared_ptr<std::vector<Outputs::Field>>& outputs) const;

 private:
  std::shared_ptr<const Batch> batch_;
  uint64_t draw_key_;
  std::shared_ptr<const Ranks> ranks_;
  std::shared_ptr<Batch> put_;
  std::weak_ptr<std::vector<Outputs::Field>> outputs_;  // weak, to avoid a cycle: outputs own the recomputation, which owns the context
};

}  // namespace npu_train
