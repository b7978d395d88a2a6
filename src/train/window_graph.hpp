// Forward and backward of a complete window as one graph of device work that is captured once and replayed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/device/device_graph.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// Sums over the micro-batches of one window.
struct WindowSums {
  int64_t micro_batches = 0;
  double full_weight = 0;  // what the losses' weights are divided by; 0 until the first micro-batch gives it
  at::Tensor sums;         // [1 + 2 x metrics]: loss (in units of full_weight), metric sums, their counts
  double weight = 0;
  double samples = 0;
};

// The first windows of a shape run eagerly, since libraries set themselves up in them. The shape that comes more often than all others
// together is captured: not that of an epoch's short last window, even if a run begins with it. A failed capture is never repeated; its
// reason is logged once.
class WindowGraph {
 public:
  // All borrowed. `updated`: what the optimizer steps; their gradients are what a replay leaves behind.
  WindowGraph(Device device, Task& task, const ParameterSet& updated);

  // Whether run() may take this window: it has the shapes and the divisor of the graph, or of enough windows to capture them.
  bool takes(const std::vector<Batch>& window, double full_weight);
  // `compute` runs a window eagerly and multiplies losses by the tensor, fp32 on the device, before their backward. False: it could not be
  // captured, and nothing was done: no gradients, no random numbers drawn.
  bool run(const std::vector<Batch>& window, double scale,
           const std::function<WindowSums(const std::vector<Batch>&, const at::Tensor& scale)>& compute, WindowSums& out);

 private:
  void capture(const std::vector<Batch>& window, const std::function<WindowSums(const std::vector<Batch>&, const at::Tensor&)>& compute);
  // The addresses of the tensors that the graph reads and that others may have moved, and which of them receive gradients.
  using Place = std::pair<const void*, bool>;
  std::vector<Place> places() const;
  void drop_gradients() const;

  static constexpr int kEager = 3;  // as many as PyTorch's own warm-up of graphs
  Device device_;
  std::vector<at::Tensor> parameters_, buffers_;  // of the model
  const ParameterSet& updated_;
  std::string shapes_;  // of the graph; before it, of the windows that lead
  int seen_ = 0;        // by as many windows; a majority vote, since shapes may be without number
  bool given_up_ = false;
  std::vector<Batch> inputs_;  // the graph's own
  at::Tensor scale_;
  WindowSums sums_;
  std::vector<at::Tensor> gradients_;  // by parameter of updated_; may be undefined
  std::vector<Place> places_;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace npu_train::detail
