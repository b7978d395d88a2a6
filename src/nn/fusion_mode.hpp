// Runs the kept chains of a fused model in place of their operators.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "nn/chain_forms.hpp"
#include "npu_train/trace/op_mode.hpp"

namespace npu_train::detail {

// A chain that is computed by `form`.
struct FusedChain {
  OpChain chain;
  ChainForm form;
  bool released = false;  // the weights of the separate operators were released
};

// The chains of a fused model; shared by its calls.
class FusionPlan {
 public:
  explicit FusionPlan(std::vector<std::shared_ptr<const FusedChain>> chains);
  // Returns the chain that begins with this call of `op`, or nullptr.
  std::shared_ptr<const FusedChain> begins(const c10::OperatorHandle& op, const c10::IValue* args) const;
  // Returns the layer whose released weight is among the arguments; "" if none is.
  std::string released_layer(const c10::IValue* args, size_t count) const;
  // Throws Error(Usage) if a released parameter has new memory, because its NaN could no longer be recognised.
  void check_unmoved() const;

 private:
  struct Released {
    std::string layer;
    at::Tensor parameter;  // the parameter in the module
  };
  std::unordered_map<const void*, std::vector<std::shared_ptr<const FusedChain>>> by_weight_;  // key nullptr: attention
  std::unordered_map<const void*, Released> released_;                                         // key: storage of the weight
};

// One call of a fused model. The operators of a chain return stand-ins (right sizes, no memory); the last operator computes the complete
// chain. If another operator reads a stand-in, the separate operators compute its value.
class FusionMode : public OpMode {
 public:
  explicit FusionMode(const FusionPlan& plan) : plan_(plan) {}
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;
  // Replaces a stand-in by its value, for example if it is the model's result.
  void settle(const at::Tensor& t);

 private:
  using Impl = c10::TensorImpl;
  struct StandIn {
    c10::weak_intrusive_ptr<Impl> impl;
    std::shared_ptr<const FusedChain> fused;
    std::vector<torch::jit::Stack> calls;  // arguments of the chain's steps so far
    std::vector<at::Tensor> inputs;        // inputs of `fused->form` that were collected so far
    bool passed = false;                   // a later step has consumed the result; kept in case another operator reads it, too
  };

  StandIn* find(const c10::IValue& value);
  bool carry_on(const c10::OperatorHandle& op, torch::jit::Stack& stack, c10::IValue* args);
  void begin(std::shared_ptr<const FusedChain> fused, torch::jit::Stack& stack, c10::IValue* args);
  void settle_all(c10::IValue* args, size_t count);
  void settle_what_reads(const c10::OperatorHandle& op, const c10::IValue* args);
  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack, const c10::IValue* args, size_t count);
  at::Tensor stand_in(const at::Tensor& like, at::IntArrayRef sizes);
  void drop_forgotten();

  const FusionPlan& plan_;
  std::vector<StandIn> stand_ins_;
};

}  // namespace npu_train::detail
