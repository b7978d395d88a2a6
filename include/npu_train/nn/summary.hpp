/// Layers, output shapes, parameters and FLOPs of any module, observed in one forward pass.
///
/// FLOPs include convolutions, matrix products (including linear layers) and attention, but not biases, norms, activations and pooling. A
/// multiply-add counts as two FLOPs, so the numbers are twice the "multiply-adds" of other tools.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct LayerSummary {
  std::string name{};                   ///< path of the module that owns the parameters, or the block and the operation in parentheses
  std::string type{};                   ///< "Conv2d", "BatchNorm2d", "Linear", "attention" ...
  std::vector<int64_t> output_shape{};  ///< shape for one sample (batch dimension 1); empty if the layer was not used
  int64_t parameters = 0;               ///< parameters of the module itself, without submodules
  int64_t flops = 0;                    ///< for one sample
};

struct ModelSummary {
  std::string model{};
  std::vector<int64_t> input_shape{};
  std::vector<LayerSummary> layers{};  ///< in the order of first use; unused layers last
  std::vector<LayerSummary> blocks{};  ///< the same numbers per block; empty for a model without blocks
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t buffers = 0;  ///< number of elements
  int64_t flops = 0;    ///< forward, for one sample

  /// Returns a table with a line of totals: by block if there are blocks and `by_layer` is false, otherwise by layer.
  std::string str(bool by_layer = false) const;
};

/// Observes one forward of one sample of Model::inputs, in evaluation mode without gradients, on the model's device and in its dtype. For
/// products, convolutions and attention, only the shapes of the results are computed; all other operators run. Modes and state are
/// restored. `sizes` overrides the usual values of the inputs' free sizes ({{"height", 32}, {"width", 32}}). Error(Usage) if a size is
/// unknown. No other thread may use the model at the same time.
ModelSummary summarize(const Model& model, const std::map<std::string, int64_t>& sizes = {});

/// Returns the FLOPs of the forward for one sample.
int64_t flops_per_sample(const Model& model);

/// Ratio of the FLOPs of a training step to those of its forward: for each product of the forward, the backward computes two.
inline constexpr double kStepPasses = 3;

}  // namespace npu_train
