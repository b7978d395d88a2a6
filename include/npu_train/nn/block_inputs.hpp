/// Further tensors for blocks, which map one tensor to one tensor: the other inputs of the network (an attention mask, the types of
/// tokens), values that one block computes for all later ones (positions), and further outputs (the features of two towers).
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

/// While one lives, get() of this thread reads the fields of its batch, and those that put() added. The forward that chain_blocks() makes
/// has one around its blocks (for a function of one tensor without fields at first), and checkpoint() repeats its function under that of
/// its first call. Scopes nest; the innermost one holds.
class BlockInputs {
 public:
  explicit BlockInputs(const Batch& batch);
  ~BlockInputs();
  BlockInputs(const BlockInputs&) = delete;
  BlockInputs& operator=(const BlockInputs&) = delete;

  /// Undefined if the batch has no such field, and outside of a scope: every input but the first may be omitted.
  static at::Tensor get(const std::string& name);
  /// For get() until the scope ends: adds or replaces a field. A block that is recomputed must put the same again. Error(Usage) outside of
  /// a scope.
  static void put(const std::string& name, at::Tensor value);

  /// An output of the network. If a block gives one, the forward that chain_blocks() makes returns those that were given, in that order,
  /// in place of what the last block returns. It does nothing while a block is recomputed. Error(Usage) outside of a scope.
  static void give(const std::string& name, at::Tensor value);
  /// Those that blocks gave in this scope so far.
  Outputs given() const { return Outputs(given_); }

  /// What a thread reads, to read the same later or in another thread.
  class State {
   public:
    /// As it is now.
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
