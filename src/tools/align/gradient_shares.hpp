// Finds the share that one call contributes to the gradient of a tensor, which may feed several layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <unordered_set>
#include <utility>
#include <vector>

namespace npu_train::detail {

// Returns the sequence number of the next autograd node of this thread.
uint64_t next_autograd_node();

// The part of autograd's graph that one call created: the nodes between its inputs and its outputs.
class CallGraph {
 public:
  // Receives the gradient along one edge each time that the node of the edge runs; the tensor is undefined if there is no gradient.
  using Listener = std::function<void(const at::Tensor&)>;

  CallGraph() = default;
  // `begin`: next_autograd_node() before the call. `inputs` must be taken before the call and live as long as the graph.
  CallGraph(const std::vector<at::Tensor>& inputs, uint64_t begin);

  // Follows the outputs back to the inputs, through nodes of the call that were not visited yet. Calls `found` with the position of an
  // input for each edge that leads to it; the returned listener observes that edge.
  void follow(const std::vector<at::Tensor>& outputs, const std::function<Listener(size_t)>& found);

 private:
  uint64_t begin_ = 0;
  std::vector<std::pair<const void*, uint32_t>> inputs_;  // for each input, its node and the index of the node's output; nullptr for a leaf
  std::unordered_set<const void*> met_;
};

}  // namespace npu_train::detail
