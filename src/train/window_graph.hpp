// Forward and backward of a complete window as one graph of device work that is captured once and replayed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/device_graph.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/train/options.hpp"
#include "npu_train/train/task.hpp"
#include "train/window_pass.hpp"

namespace npu_train::detail {

// Runs the first windows of a shape eagerly, because libraries initialise themselves in them. Captures the shape that is more frequent than
// all others together. This is not the shape of an epoch's short last window, even if a run begins with such a window. A failed capture is
// never repeated; its reason is logged once.
class WindowGraph {
 public:
  // The sets are borrowed. `parameters` and `buffers`: those of the task. `updated`: the parameters that the optimizer steps, whose
  // gradients a replay sets.
  WindowGraph(Device device, const ParameterSet& parameters, std::vector<NamedTensor> buffers, const ParameterSet& updated);

  // Computes a window by the graph if the window has the shapes and `full_weight` of the graph; captures the graph once enough such windows
  // have run. `eagerly` computes all other windows, and is what a capture records. It multiplies losses before their backward by its
  // argument `scale` (fp32 on the device), or by the precision's scale if that argument is undefined. A failed capture leaves no gradients,
  // and restores the states of the generators.
  using Compute = std::function<WindowSums(const std::vector<Batch>& window, const at::Tensor& scale)>;
  WindowSums run(const std::vector<Batch>& window, double full_weight, double scale, const Compute& eagerly);

 private:
  bool takes(const std::vector<Batch>& window, double full_weight);
  bool prepare(const std::vector<Batch>& window, const Compute& eagerly);
  void capture(const std::vector<Batch>& window, const Compute& eagerly);
  // Address of a tensor that the graph reads and that other code may have moved, and whether the tensor receives a gradient.
  using Place = std::pair<const void*, bool>;
  std::vector<Place> places() const;
  void drop_gradients() const;

  static constexpr int kEager = 3;  // as many as in PyTorch's own warm-up of graphs
  Device device_;
  const ParameterSet& parameters_;
  const std::vector<NamedTensor> buffers_;
  const ParameterSet& updated_;
  std::string shapes_;  // shapes of the graph; before the capture, shapes of the leading candidate
  int seen_ = 0;        // lead of the candidate in a majority vote, which needs no list of all shapes
  bool given_up_ = false;
  std::vector<Batch> inputs_;  // the graph's own inputs
  at::Tensor scale_;
  WindowSums sums_;
  std::vector<at::Tensor> gradients_;  // gradients by parameter of updated_; may be undefined
  std::vector<Place> places_;
  std::unique_ptr<DeviceGraph> graph_;
};

// trainer.cuda_graphs: whether a run captures the forward and backward of its windows.

// Returns whether the run captures graphs. If it does not, logs the reason if graphs are requested or the device is a CUDA device.
bool captures_graphs(const TrainerOptions& options, const Device& device, const Task& task, const Strategy& strategy);

}  // namespace npu_train::detail
