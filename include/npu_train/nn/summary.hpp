/// What a model is made of: layers, output shapes, parameters, FLOPs; observed from one real forward pass, so it works for any module.
///
/// FLOPs count a multiply and an add as two, of convolutions, matrix products (linear layers too) and attention; biases, norms,
/// activations and pooling are not counted. So 2 x the "multiply-adds" of other tools.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct LayerSummary {
  std::string name{};                   ///< path of the module that owns the parameters, or the block and the operation in brackets
  std::string type{};                   ///< "Conv2d", "BatchNorm2d", "Linear", "attention" ...
  std::vector<int64_t> output_shape{};  ///< of one sample's forward, batch dimension 1; empty when the layer was not used
  int64_t parameters = 0;               ///< owned by the module itself
  int64_t flops = 0;                    ///< for one sample
};

struct ModelSummary {
  std::string model{};
  std::vector<int64_t> input_shape{};
  std::vector<LayerSummary> layers{};  ///< in order of first use; unused ones last
  std::vector<LayerSummary> blocks{};  ///< the same by block of the model; empty for a model without blocks
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t buffers = 0;  ///< elements
  int64_t flops = 0;    ///< forward, for one sample

  /// A table for people, by block where there are blocks (`by_layer`: by layer always), and a line of totals.
  std::string str(bool by_layer = false) const;
};

/// Runs the model once on zeros, one sample of Model::inputs, in evaluation mode without gradients, on its own device and dtype; modes and
/// state are as before afterwards. `sizes` are free sizes of the inputs by name ({{"height", 32}, {"width", 32}}); the others are the usual
/// ones. Error(Usage) if nothing gives a size. Not for a model that another thread uses.
ModelSummary summarize(const Model& model, const std::map<std::string, int64_t>& sizes = {});

/// Forward FLOPs for one sample of the model's size.
int64_t flops_per_sample(const Model& model);

}  // namespace npu_train
