// Runs the kept chains of a fused model in the place of their operators.
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
  bool released = false;  // the weights of the separate operators are gone
};

// What a fused model runs by; shared by its calls.
class FusionPlan {
 public:
  explicit FusionPlan(std::vector<std::shared_ptr<const FusedChain>> chains);
  // The chain that begins with a call of `op`; nullptr for none.
  std::shared_ptr<const FusedChain> begins(const c10::OperatorHandle& op, const c10::IValue* args) const;
  // The layer whose weight was given up and is read here; "" for none.
  std::string released_layer(const c10::IValue* args, size_t count) const;
  // Error(Usage) where a parameter that was given up has other memory by now: its NaN would not be known as such.
  void check_unmoved() const;

 private:
  struct Released {
    std::string layer;
    at::Tensor parameter;  // the module's own
  };
  std::unordered_map<const void*, std::vector<std::shared_ptr<const FusedChain>>> by_weight_;  // nullptr: attention
  std::unordered_map<const void*, Released> released_;                                         // by the storage of the weight
};

// One call of a fused model. The operators of a chain give stand-ins (of the right sizes, without memory) until its last one, which
// computes all at once. Another operator that asks for a stand-in gets the value that the separate operators give.
class FusionMode : public OpMode {
 public:
  explicit FusionMode(const FusionPlan& plan) : plan_(plan) {}
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override;
  // Gives `t` memory: the result of the model may be a stand-in.
  void settle(const at::Tensor& t);

 private:
  using Impl = c10::TensorImpl;
  struct StandIn {
    c10::weak_intrusive_ptr<Impl> impl;
    std::shared_ptr<const FusedChain> fused;
    std::vector<torch::jit::Stack> calls;  // of its steps so far
    std::vector<at::Tensor> inputs;        // of the form, so far
    bool passed = false;                   // a later step has it; kept in case that something else reads it too
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
