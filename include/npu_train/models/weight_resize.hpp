/// Weights of a vision transformer for another image size or patch size.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace npu_train {

/// Position embedding [1, 1 + n^2, dim] of a class token and a square of patches -> [1, `tokens`, dim]: the class token's is kept, those of
/// the patches are interpolated (bicubic with antialiasing in fp32, as timm's resample_abs_pos_embed). The same for a class token and a
/// distillation token, [1, 2 + n^2, dim]. Of a network that adds positions to the patches alone, [1, n^2, dim], the first tokens get zeros,
/// which is the same network. Error(Usage) for other shapes.
at::Tensor resize_positions(const at::Tensor& positions, int64_t tokens);

/// Patch projection [dim, channels, p, p] -> [dim, channels, `patch_size`, `patch_size`], by the pseudo-inverse of the bicubic resize of
/// patches (Beyer et al., "FlexiViT", CVPR 2023; as timm's resample_patch_embed): larger patches that were resized from smaller ones give
/// the same tokens. Error(Usage) for other shapes.
at::Tensor resize_patches(const at::Tensor& projection, int64_t patch_size);

/// The weight `name` of a ViT with torchvision's names in the shape `sizes`, by these functions. Undefined for other weights and if the
/// shapes differ in other ways.
at::Tensor resized_weight(const std::string& name, const at::Tensor& value, at::IntArrayRef sizes);

}  // namespace npu_train
