/// Resizes weights of a vision transformer to another image size or patch size.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace npu_train {

/// Returns the side of a square of `patches`; 0 if they do not form one.
int64_t side_of_square(int64_t patches);

/// Resizes a position embedding [1, 1 + n^2, dim] of a class token and a square of patches to [1, `tokens`, dim]: keeps the row of the
/// class token and interpolates the rows of the patches (bicubic with antialiasing in fp32, like timm's resample_abs_pos_embed). Also
/// accepts [1, 2 + n^2, dim], with a distillation token. For [1, n^2, dim], from a network that adds positions only to the patches, the
/// leading tokens get zeros, which is equivalent. Error(Usage) for other shapes.
at::Tensor resize_positions(const at::Tensor& positions, int64_t tokens);

/// Resizes a patch projection [dim, channels, p, p] to [dim, channels, `patch_size`, `patch_size`], by the pseudo-inverse of the bicubic
/// resize of patches (Beyer et al., "FlexiViT", CVPR 2023; like timm's resample_patch_embed): larger patches that were resized from smaller
/// ones give the same tokens. Error(Usage) for other shapes.
at::Tensor resize_patches(const at::Tensor& projection, int64_t patch_size);

/// Resizes the position embedding or patch projection of a ViT with torchvision's names to `sizes`. Returns an undefined tensor for any
/// other weight, and if the shapes differ in other ways.
at::Tensor resized_weight(const std::string& name, const at::Tensor& value, at::IntArrayRef sizes);

}  // namespace npu_train
