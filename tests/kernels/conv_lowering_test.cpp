#include "testing.hpp"

#include "kernels/conv_lowering.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <vector>

namespace npu_train {
namespace {

struct LoweredSizes {
  int64_t n, c, h, w, k, kernel, stride, padding;
};

// A convolution with its gradients in double, for one set of operands.
struct ExactConv {
  at::Tensor x, w, dy, y, dx, dw;

  ExactConv(const LoweredSizes& s, const at::Tensor& x_in, const at::Tensor& w_in, const at::Tensor& dy_in = {})
      : x(x_in.to(at::kDouble).detach().requires_grad_()), w(w_in.to(at::kDouble).detach().requires_grad_()) {
    y = at::conv2d(x, w, {}, {s.stride, s.stride}, at::IntArrayRef{s.padding, s.padding});
    dy = dy_in.defined() ? dy_in : at::randn(y.sizes());
    const auto gradients = torch::autograd::grad({y}, {x, w}, {dy.to(at::kDouble)});
    dx = gradients[0], dw = gradients[1];
  }
};

// Returns whether fp32 sums of `terms` products are as near to the exact sums as every order of additions allows: within `terms` units of
// rounding of the sum of the products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 3.1).
bool is_near(const at::Tensor& got, const at::Tensor& want, const at::Tensor& magnitudes, int64_t terms) {
  return got.sizes() == want.sizes() && got.is_contiguous(at::MemoryFormat::ChannelsLast) &&
         ((got.to(at::kDouble) - want).abs() <= static_cast<double>(terms) * 0x1p-24 * magnitudes).all().item<bool>();
}

// Fills memory of a tensor's size with NaN and frees it, so that the next tensor of that size gets this memory.
void litter(at::IntArrayRef sizes) { at::full(sizes, testing::kNaN, at::kFloat); }

}  // namespace

TEST_CASE("every lowering of every pass gives the sums of conv2d") {
  at::manual_seed(1);
  int pointwise_ones = 0, dense_ones = 0;
  for (const auto& s : std::vector<LoweredSizes>{{3, 5, 4, 3, 6, 1, 1, 0},   // 1x1
                                                 {3, 5, 7, 6, 4, 1, 2, 0},   // 1x1; the stride reaches the last row, not the last column
                                                 {3, 5, 8, 8, 4, 1, 3, 0},   //
                                                 {3, 5, 4, 4, 4, 1, 1, 1},   // 1x1 with padding
                                                 {4, 3, 1, 1, 5, 3, 1, 1},   // maps of one pixel
                                                 {4, 3, 2, 2, 5, 3, 1, 1},   // each pixel sees all others
                                                 {4, 3, 2, 3, 5, 5, 2, 2},   //
                                                 {4, 3, 1, 4, 5, 3, 1, 1},   // some taps read only padding
                                                 {4, 3, 2, 2, 5, 3, 5, 3},   // stride wider than the kernel, padding as wide as the kernel
                                                 {4, 3, 2, 2, 5, 3, 1, 4},   // padding wider than the kernel
                                                 {2, 3, 9, 7, 4, 3, 1, 1},   //
                                                 {2, 3, 9, 7, 4, 3, 2, 1},   //
                                                 {2, 3, 9, 8, 4, 3, 2, 0},   //
                                                 {2, 3, 11, 8, 4, 7, 2, 3},  //
                                                 {2, 3, 5, 5, 4, 3, 1, 4},   //
                                                 {1, 128, 40, 40, 2, 3, 1, 1}})  // several blocks of patches
  {
    CAPTURE(s.h);
    CAPTURE(s.w);
    CAPTURE(s.kernel);
    CAPTURE(s.stride);
    CAPTURE(s.padding);
    const auto drawn = [](at::IntArrayRef sizes) { return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast); };
    const at::Tensor x = drawn({s.n, s.c, s.h, s.w}), w = drawn({s.k, s.c, s.kernel, s.kernel});
    const ExactConv want(s, x, w);
    const at::Tensor dy = want.dy.contiguous(at::MemoryFormat::ChannelsLast);
    const ExactConv magnitudes(s, x.abs(), w.abs(), dy.abs());
    const detail::ConvShape shape(x, w, s.stride, s.padding);
    REQUIRE(shape.out_height == want.y.size(2));
    REQUIRE(shape.out_width == want.y.size(3));
    const int64_t terms = s.c * shape.taps(), terms_dx = s.k * shape.taps(), terms_dw = s.n * shape.out_pixels();
    if (shape.pointwise()) {
      ++pointwise_ones;
      CHECK(is_near(detail::pointwise::forward(shape, x, w), want.y, magnitudes.y, terms));
      litter(x.sizes());
      CHECK(is_near(detail::pointwise::input_gradient(shape, dy, w), want.dx, magnitudes.dx, terms_dx));
      CHECK(is_near(detail::pointwise::weight_gradient(shape, dy, x), want.dw, magnitudes.dw, terms_dw));
    }
    if (shape.in_pixels() <= 64) {
      ++dense_ones;
      CHECK(is_near(detail::dense::forward(shape, x, w), want.y, magnitudes.y, terms));
      CHECK(is_near(detail::dense::input_gradient(shape, dy, w), want.dx, magnitudes.dx, terms_dx));
    }
    litter(w.sizes());
    CHECK(is_near(detail::taps::weight_gradient(shape, dy, x), want.dw, magnitudes.dw, terms_dw));
    litter(w.sizes());
    CHECK(is_near(detail::patches::weight_gradient(shape, dy, x), want.dw, magnitudes.dw, terms_dw));
  }
  CHECK(pointwise_ones == 3);
  CHECK(dense_ones == 13);
}

}  // namespace npu_train
