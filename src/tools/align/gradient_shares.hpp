// The gradient of a tensor that a call contributes: if a value feeds several layers, each of them contributes a share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <utility>
#include <vector>

namespace npu_train::detail {

// The number that autograd gives to the next node of this thread.
uint64_t next_autograd_node();

// The part of autograd's graph that one call made: the nodes between its outputs and its inputs.
class CallGraph {
 public:
  // Receives the gradient along one edge, undefined if there is none, each time that the edge's node runs.
  using Listener = std::function<void(const at::Tensor&)>;

  CallGraph() = default;
  // `begin`: next_autograd_node() before the call. `inputs` as they are before it; they must live as long as the graph.
  CallGraph(const std::vector<at::Tensor>& inputs, uint64_t begin);

  // Follows the outputs back to the inputs, over unvisited nodes of the call. `found` is called once for each edge that
  // leads to an input, with the input's position, and its result observes that edge.
  void follow(const std::vector<at::Tensor>& outputs, const std::function<Listener(size_t)>& found);

 private:
  uint64_t begin_ = 0;
  std::vector<std::pair<const void*, uint32_t>> inputs_;  // the node that made each, and the number of its output; none of leaves
  std::unordered_set<const void*> met_;
};

}  // namespace npu_train::detail
