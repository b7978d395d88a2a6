/// 2-D convolution as matrix products, where they are faster than the CPU's convolution kernels.
///
/// oneDNN's convolutions are near the machine's peak for large maps in the forward pass and slow elsewhere. Without AVX-512, the fp32
/// weight gradient of channels_last tensors takes 1.3 to 2 times the time of its matrix product. Maps of a few pixels with many channels
/// take 2 to 30 times as long, because weights are reordered on each call and most taps of a 3x3 kernel fall into the padding. There are
/// four lowerings:
/// - pointwise: a 1x1 kernel is a product whose rows are the pixels; with a stride, the rows are the subsampled pixels;
/// - dense: if the map has fewer pixels than the kernel has taps, the layer runs as a fully connected layer between all pixels, with
///   prepacked weights (taps in the padding are omitted: 1/9 of the work at 1x1, 4/9 at 2x2);
/// - taps: for the weight gradient on small maps, one product per tap over the pairs of pixels that the tap connects;
/// - patches: for the weight gradient, blocks of im2col rows (Chellapilla et al. 2006) that stay in the cache.
/// The lowering of each pass depends only on sizes and instruction set, never on a timing.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Computes at::conv2d(x, weight, {}, stride, padding) for x [N, C, H, W] and weight [K, C, kh, kw] with kh = kw; equal up to the order of
/// additions. Lowered on the CPU if x or weight is channels_last, for fp32, for bf16 with AVX512_BF16, and inside a region that emulates a
/// low precision (rounded inputs and results, see precision/emulation.hpp). Other cases call at::conv2d. Errors of libtorch become Error; a
/// double backward of a lowered convolution is Error(Usage).
at::Tensor lowered_conv2d(const at::Tensor& x, const at::Tensor& weight, int64_t stride = 1, int64_t padding = 0);

}  // namespace npu_train
