/// Residual networks (He et al., "Deep Residual Learning", CVPR 2016; in bottlenecks the 3x3 convolution has the stride, as in
/// torchvision). Parameter names and shapes are torchvision's: conv1, bn1, layer1.0.conv1, layer1.0.downsample.0, fc ...
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct ResNetOptions {
  int64_t num_classes = 1000;      ///< number of outputs of the head
  int64_t image_size = 224;        ///< width and height in pixels, for summaries and benchmarks; the network accepts any size
  int64_t channels = 3;            ///< channels of the input
  std::string stem = "imagenet";   ///< imagenet: 7x7 stride 2 and max pooling; small: 3x3 stride 1 without pooling, for 32x32 images
  bool zero_init_residual = true;  ///< initialises the last gamma of each block with 0, so that blocks start as the identity and training
                                   ///< is more stable (Goyal et al. 2017)
  /// auto: where they are faster, one kernel for norm, shortcut and ReLU (batch_norm_act), and matrix products for convolutions
  /// (lowered_conv2d); false: PyTorch's operators
  std::string fused_kernels = "auto";
  std::string weights{};       ///< file with initial weights
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<ResNetOptions>& config_table();
};

/// Creates a network of depth 18, 34 (basic blocks), 50, 101 or 152 (bottlenecks). Input [N, channels, H, W]. Weights are drawn from the
/// default generator: Kaiming normal (fan out) for convolutions, uniform for the head; norms have scale 1 and shift 0. Blocks: stem,
/// layer1.0 ..., head. Error(Usage) for another depth.
Model resnet(int64_t depth, const ResNetOptions& options = {});

}  // namespace npu_train
