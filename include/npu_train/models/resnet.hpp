/// Residual networks (He et al., "Deep Residual Learning", CVPR 2016; the stride sits in the 3x3 convolution, as in torchvision).
/// Parameter names and shapes are torchvision's: conv1, bn1, layer1.0.conv1, layer1.0.downsample.0, fc ...
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct ResNetOptions {
  int64_t num_classes = 1000;     ///< outputs of the head
  int64_t image_size = 224;       ///< pixels; any size of at least 1 runs, this one is what summaries and benchmarks use
  int64_t channels = 3;           ///< of the input
  std::string stem = "imagenet";  ///< imagenet: 7x7 stride 2 and max pooling; small: 3x3 stride 1 without pooling, for 32x32 pictures
  bool zero_init_residual =
      true;  ///< last gamma of each block starts at 0: blocks start as identity, training is steadier (Goyal et al. 2017)
  /// auto: norm, shortcut and ReLU as one kernel (batch_norm_act) and convolutions as matrix products (lowered_conv2d), where that is
  /// faster; false: PyTorch's operations
  std::string fused_kernels = "auto";
  std::string weights{};       ///< file to start from
  bool weights_strict = true;  ///< weights of another network are an error; false loads what fits
  static const ConfigTable<ResNetOptions>& config_table();
};

/// depth: 18, 34 (basic blocks), 50, 101, 152 (bottlenecks). Input [N, channels, H, W]. Weights are drawn from the default generator:
/// convolutions Kaiming normal (fan out), head uniform, norms 1 and 0. Blocks: stem, layer1.0 ..., head. Error(Usage) for another depth.
Model resnet(int64_t depth, const ResNetOptions& options = {});

}  // namespace npu_train
