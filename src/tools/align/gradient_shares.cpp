#include "tools/align/gradient_shares.hpp"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <memory>

namespace npu_train::detail {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Passes the gradient that a node sends along one edge to a listener.
class EdgeHook final : public torch::autograd::FunctionPostHook {
 public:
  EdgeHook(size_t edge, CallGraph::Listener listener) : edge_(edge), listener_(std::move(listener)) {}
  variable_list operator()(const variable_list& gradients, const variable_list& /*inputs*/) override {
    if (edge_ < gradients.size()) listener_(gradients[edge_]);
    return gradients;
  }

 private:
  size_t edge_;
  CallGraph::Listener listener_;
};

}  // namespace

uint64_t next_autograd_node() { return at::sequence_number::peek(); }

CallGraph::CallGraph(const std::vector<at::Tensor>& inputs, uint64_t begin) : begin_(begin) {
  for (const auto& input : inputs) {
    const bool inner = input.defined() && input.requires_grad() && !input.is_leaf();
    inputs_.emplace_back(inner ? input.grad_fn().get() : nullptr, inner ? input.output_nr() : 0);
  }
}

void CallGraph::follow(const std::vector<at::Tensor>& outputs, const std::function<Listener(size_t)>& found) {
  std::vector<Node*> open;
  const auto meet = [&](Node* node) {
    if (node != nullptr && node->sequence_nr() >= begin_ && met_.insert(node).second) open.push_back(node);
  };
  for (const auto& output : outputs)
    if (output.defined() && output.requires_grad()) meet(output.grad_fn().get());
  while (!open.empty()) {
    auto* node = open.back();
    open.pop_back();
    for (size_t i = 0; i < node->next_edges().size(); ++i) {
      const auto& edge = node->next_edges()[i];
      for (size_t position = 0; position < inputs_.size(); ++position)
        if (edge.is_valid() && inputs_[position] == std::pair<const void*, uint32_t>(edge.function.get(), edge.input_nr))
          node->add_post_hook(std::make_unique<EdgeHook>(i, found(position)));
      meet(edge.function.get());
    }
  }
}

}  // namespace npu_train::detail
