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
  double full_weight = 0;  // divisor of the losses' weights; 0 until the first micro-batch sets it
  at::Tensor sums;         // [1 + 2 x metrics]: loss (in units of full_weight), metric sums, their counts
  double weight = 0;
  double samples = 0;
};

// The first windows of a shape run eagerly, since libraries initialise themselves in them. The shape that is more frequent than all others
// together is captured: not that of an epoch's short last window, even if a run begins with it. A failed capture is never repeated; its
// reason is logged once.
class WindowGraph {
 public:
  // All arguments are borrowed. `updated`: the parameters that the optimizer steps, whose gradients a replay sets.
  WindowGraph(Device device, Task& task, const ParameterSet& updated);

  // Whether run() may take this window: it has the shapes and the divisor of the graph, or of enough windows to capture one.
  bool takes(const std::vector<Batch>& window, double full_weight);
  // Runs a window by the graph, which is captured first if necessary. `compute` runs a window eagerly, and multiplies losses by the tensor,
  // fp32 on the device, before their backward. Returns false if the capture failed, without gradients and with restored generators.
  bool run(const std::vector<Batch>& window, double scale,
           const std::function<WindowSums(const std::vector<Batch>&, const at::Tensor& scale)>& compute, WindowSums& out);

 private:
  void capture(const std::vector<Batch>& window, const std::function<WindowSums(const std::vector<Batch>&, const at::Tensor&)>& compute);
  // Addresses of the tensors that the graph reads and that other code may have moved, and whether they receive gradients.
  using Place = std::pair<const void*, bool>;
  std::vector<Place> places() const;
  void drop_gradients() const;

  static constexpr int kEager = 3;  // as many as PyTorch's own warm-up of graphs
  Device device_;
  std::vector<at::Tensor> parameters_, buffers_;  // tensors of the model
  const ParameterSet& updated_;
  std::string shapes_;  // shapes of the graph; before the capture, of the leading candidate
  int seen_ = 0;        // lead of the candidate in a majority vote, which needs no list of all shapes
  bool given_up_ = false;
  std::vector<Batch> inputs_;  // the graph's own inputs
  at::Tensor scale_;
  WindowSums sums_;
  std::vector<at::Tensor> gradients_;  // gradients by parameter of updated_; may be undefined
  std::vector<Place> places_;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace npu_train::detail
