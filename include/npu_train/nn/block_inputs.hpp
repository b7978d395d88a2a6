/// Additional tensors for blocks, which map one tensor to one tensor: other inputs of the network (attention mask, token types), values
/// that one block computes for later ones (positions), and additional outputs (the features of two towers).
///
///   at::Tensor embed(const at::Tensor& tokens) {
///     npu_train::BlockInputs::put("visible", mask_of(tokens));
///     return embedding->forward(tokens);
///   }
///   at::Tensor block(const at::Tensor& x) { return attention->forward(x, npu_train::BlockInputs::get("visible")); }
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/outputs.hpp"

namespace npu_train {

/// During its lifetime, get() on this thread reads the fields of the batch and those added by put(). The forward of chain_blocks() opens
/// such a scope around its blocks (without fields for a function of one tensor), and checkpoint() repeats its function in the scope of the
/// first call. Scopes nest; the innermost one applies.
class BlockInputs {
 public:
  explicit BlockInputs(const Batch& batch);
  ~BlockInputs();
  BlockInputs(const BlockInputs&) = delete;
  BlockInputs& operator=(const BlockInputs&) = delete;

  /// Returns the field. Undefined if the batch does not have it, and outside of a scope: every input except the first is optional.
  static at::Tensor get(const std::string& name);
  /// Adds or replaces a field for get() until the scope ends. A recomputed block must put the same value again. Error(Usage) outside of a
  /// scope.
  static void put(const std::string& name, at::Tensor value);

  /// Adds an output of the network. If blocks add any, the forward of chain_blocks() returns these, in this order, instead of the last
  /// block's result. Has no effect during a recomputation. Error(Usage) outside of a scope.
  static void give(const std::string& name, at::Tensor value);
  /// Outputs that blocks have added in this scope so far.
  Outputs given() const { return Outputs(given_); }

  /// The batch that get() of a thread reads, to read it later or on another thread.
  class State {
   public:
    /// Captures the current state.
    State();
    class Scope;

   private:
    std::shared_ptr<Batch> batch_;
  };

 private:
  std::shared_ptr<Batch> before_;
  BlockInputs* outer_;
  std::vector<Outputs::Field> given_;
};

class BlockInputs::State::Scope {
 public:
  explicit Scope(const State& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::shared_ptr<Batch> before_;
  BlockInputs* receiver_;
};

}  // namespace npu_train
