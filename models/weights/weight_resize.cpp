#include "npu_train/models/weight_resize.hpp"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_pinv.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

// Returns how many tokens of a ViT precede the square of patches: 1 (class token), 2 (with a distillation token) or 0; -1 if none of these
// numbers leaves a square. At most one of them does.
int64_t first_tokens_of(int64_t tokens) {
  for (const int64_t first : {1, 2, 0})
    if (side_of_square(tokens - first) > 0) return first;
  return -1;
}

// Resizes [N, C, H, W] to [N, C, height, width].
at::Tensor interpolated(const at::Tensor& images, int64_t height, int64_t width) {
  return at::_upsample_bicubic2d_aa(images, {height, width}, /*align_corners=*/false);
}

bool equal_outside(at::IntArrayRef a, at::IntArrayRef b, size_t first, size_t last) {
  for (size_t i = 0; i < a.size(); ++i)
    if ((i < first || i > last) && a[i] != b[i]) return false;
  return true;
}

}  // namespace

int64_t side_of_square(int64_t patches) {
  const auto side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(patches, 0))));
  return side * side == patches ? side : 0;
}

at::Tensor resize_positions(const at::Tensor& positions, int64_t tokens) {
  const auto had = positions.dim() == 3 && positions.size(0) == 1 ? first_tokens_of(positions.size(1)) : -1,
             first = first_tokens_of(tokens);
  check(had >= 0 && first >= 1 && (had == 0 || had == first), ErrorKind::Usage, "resize_positions", "positions of shape ",
        positions.sizes(), " for ", tokens,
        " tokens; both must be those of a square of patches after a class token (and a distillation token), which may have none in the "
        "first");
  const auto from = side_of_square(positions.size(1) - had), to = side_of_square(tokens - first);
  const auto all = positions.to(at::kFloat);
  auto square = all.narrow(1, had, from * from);
  if (from != to) {
    const auto patches = square.reshape({1, from, from, -1}).permute({0, 3, 1, 2});
    square = interpolated(patches, to, to).permute({0, 2, 3, 1}).reshape({1, to * to, -1});
  }
  return at::cat({had == 0 ? at::zeros({1, first, all.size(2)}) : all.narrow(1, 0, first), square}, 1);
}

at::Tensor resize_patches(const at::Tensor& projection, int64_t patch_size) {
  check(projection.dim() == 4 && projection.size(2) == projection.size(3) && projection.size(2) > 0 && patch_size > 0, ErrorKind::Usage,
        "resize_patches", "a projection of shape ", projection.sizes(), " for patches of ", patch_size,
        " pixels; the shape must be [dim, channels, p, p]");
  // Computes the matrix that resizes along one direction, because the resize is the product of a resize along rows and one along columns.
  // Row i of the identity is a line of p pixels in which only pixel i is 1. (If the lines were columns of width 1, the result would be
  // wrong in libtorch 2.13.)
  const auto p = projection.size(2);
  const auto resize = interpolated(at::eye(p, at::kDouble).reshape({1, 1, p, p}), p, patch_size).reshape({p, patch_size}).t();
  const auto inverse = at::linalg_pinv(resize);
  return at::matmul(at::matmul(inverse.t(), projection.to(at::kDouble)), inverse).to(at::kFloat);
}

at::Tensor resized_weight(const std::string& name, const at::Tensor& value, at::IntArrayRef sizes) {
  if (value.dim() != static_cast<int64_t>(sizes.size()) || !value.is_floating_point()) return {};
  if (name == "encoder.pos_embedding" && sizes.size() == 3 && equal_outside(value.sizes(), sizes, 1, 1)) {
    const auto had = first_tokens_of(value.size(1)), first = first_tokens_of(sizes[1]);
    return had >= 0 && first >= 1 && (had == 0 || had == first) ? resize_positions(value, sizes[1]) : at::Tensor();
  }
  if (name == "conv_proj.weight" && sizes.size() == 4 && equal_outside(value.sizes(), sizes, 2, 3) && value.size(2) == value.size(3) &&
      value.size(2) > 0 && sizes[2] == sizes[3])
    return resize_patches(value, sizes[2]);
  return {};
}

}  // namespace npu_train
