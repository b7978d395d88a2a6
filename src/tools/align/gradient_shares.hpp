// Which gradient of a tensor a call is to blame for: of a value that feeds several layers each of them makes a share.
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
  // Is given the gradient that goes along one edge, undefined where there is none, each time that the edge's node runs.
  using Listener = std::function<void(const at::Tensor&)>;

  CallGraph() = default;
  // `begin`: next_autograd_node() before the call. `inputs` as they are before it; they must live as long as the graph.
  CallGraph(const std::vector<at::Tensor>& inputs, uint64_t begin);

  // Follows the outputs back to the inputs, over nodes of the call that it has not met yet. `found` is asked once for each edge that leads
  // to an input, by the input's position, and its answer listens to that edge.
  void follow(const std::vector<at::Tensor>& outputs, const std::function<Listener(size_t)>& found);

 private:
  uint64_t begin_ = 0;
  std::vector<std::pair<const void*, uint32_t>> inputs_;  // the node that made each, and the number of its output; none of leaves
  std::unordered_set<const void*> met_;
};

}  // namespace npu_train::detail
