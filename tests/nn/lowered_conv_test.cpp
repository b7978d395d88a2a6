#include "testing.hpp"

#include <cmath>

#include "double_backward.hpp"
#include "kernels/conv_lowering.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/lowered_conv.hpp"
#include "npu_train/precision/autocast.hpp"
#include "reference/low_precision.hpp"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/nn.h>
#include <torch/types.h>

namespace npu_train {
namespace {

struct Sizes {
  int64_t n, c, h, w, k, kernel, stride, padding;
};

at::Tensor in_double(const Sizes& s, const at::Tensor& x, const at::Tensor& w) { return torch::conv2d(x, w, {}, s.stride, s.padding); }

double largest_error(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(at::kDouble) - want).abs().max() / want.abs().max().clamp_min(1e-30)).item<double>();
}

void check_against_aten(const Sizes& s, at::MemoryFormat format, at::MemoryFormat weight_format) {
  CAPTURE(s.h);
  CAPTURE(s.w);
  CAPTURE(s.kernel);
  CAPTURE(s.stride);
  CAPTURE(s.padding);
  at::Tensor x = torch::randn({s.n, s.c, s.h, s.w}).contiguous(format),
             w = torch::randn({s.k, s.c, s.kernel, s.kernel}).contiguous(weight_format);
  at::Tensor x64 = x.to(at::kDouble).requires_grad_(), w64 = w.to(at::kDouble).requires_grad_();
  x.requires_grad_();
  w.requires_grad_();
  const at::Tensor y = lowered_conv2d(x, w, s.stride, s.padding), want = in_double(s, x64, w64);
  REQUIRE(y.sizes().equals(want.sizes()));
  const double rounding = s.c * s.kernel * s.kernel > 2000 ? 6e-6 : 2e-6;  // rounding of a long sum, also in the library
  CHECK(largest_error(y, want) < rounding);
  const at::Tensor up = torch::randn(want.sizes());
  y.backward(up);
  want.backward(up.to(at::kDouble));
  CHECK(largest_error(x.grad(), x64.grad()) < rounding);
  CHECK(largest_error(w.grad(), w64.grad()) < 2 * rounding);
  if (s.kernel > 1) CHECK(w.grad().strides().equals(w.strides()));
}

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

TEST_CASE("values and gradients are those of conv2d in double") {
  torch::manual_seed(1);
  for (const auto& s : std::vector<Sizes>{
           {3, 20, 9, 8, 12, 1, 1, 0},    // 1x1
           {2, 16, 3, 2, 24, 1, 1, 0},    // 1x1 on a small map
           {2, 16, 9, 8, 24, 1, 2, 0},    // 1x1, with a stride that does not divide the size
           {2, 16, 8, 8, 24, 1, 3, 0},    //
           {2, 5, 4, 4, 6, 1, 1, 1},      // 1x1 with padding
           {7, 10, 1, 1, 12, 3, 1, 1},    // maps of one pixel
           {7, 10, 2, 2, 12, 3, 1, 1},    // each pixel sees all others
           {7, 10, 2, 2, 12, 3, 2, 1},    //
           {7, 10, 1, 4, 12, 3, 1, 1},    // some taps read only padding, and some pixels do not see each other
           {7, 10, 2, 3, 12, 5, 2, 2},    //
           {7, 10, 2, 2, 12, 3, 5, 3},    // a stride wider than the kernel, and padding as wide as the kernel
           {7, 10, 2, 2, 12, 3, 1, 4},    // padding wider than the kernel
           {3, 4, 8, 1, 5, 3, 1, 1},      //
           {4, 12, 9, 7, 10, 3, 1, 1},    // for the lowering by patches
           {4, 12, 9, 7, 10, 3, 2, 1},    //
           {4, 12, 9, 7, 10, 3, 1, 0},    //
           {2, 3, 21, 20, 8, 7, 2, 3},    // like the stem of a network
           {2, 6, 5, 5, 4, 3, 1, 4},      // padding wider than the kernel
           {3, 128, 40, 40, 8, 3, 1, 1},  // several blocks of patches
           {2, 256, 4, 3, 256, 3, 1, 1},  // many weights for few pixels
           {2, 256, 9, 6, 256, 3, 2, 1},  //
           {2, 256, 9, 8, 256, 3, 3, 0},  //
       }) {
    check_against_aten(s, kLast, kLast);
    check_against_aten(s, at::MemoryFormat::Contiguous, kLast);
    check_against_aten(s, kLast, at::MemoryFormat::Contiguous);
  }
}

TEST_CASE("contiguous tensors go to the library and stay contiguous") {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({2, 8, 6, 6}), w = torch::randn({4, 8, 3, 3});
  CHECK(lowered_conv2d(x, w, 1, 1).equal(torch::conv2d(x, w, {}, 1, 1)));
  CHECK(lowered_conv2d(x, w, 1, 1).is_contiguous());
  CHECK(lowered_conv2d(x.contiguous(kLast), w.contiguous(kLast), 1, 1).is_contiguous(kLast));
}

TEST_CASE("only the gradients that are required") {
  torch::manual_seed(3);
  for (const auto& s : std::vector<Sizes>{{2, 8, 6, 6, 4, 1, 1, 0}, {2, 8, 2, 2, 4, 3, 1, 1}, {2, 8, 6, 6, 4, 3, 1, 1}}) {
    for (const bool of_input : {false, true}) {
      at::Tensor x = torch::randn({s.n, s.c, s.h, s.w}).contiguous(kLast).requires_grad_(of_input);
      at::Tensor w = torch::randn({s.k, s.c, s.kernel, s.kernel}).contiguous(kLast).requires_grad_(!of_input);
      lowered_conv2d(x, w, s.stride, s.padding).sum().backward();
      CHECK(x.grad().defined() == of_input);
      CHECK(w.grad().defined() == !of_input);
    }
    at::NoGradGuard no_grad;
    CHECK(!lowered_conv2d(torch::randn({s.n, s.c, s.h, s.w}), torch::randn({s.k, s.c, s.kernel, s.kernel}).requires_grad_(), s.stride,
                          s.padding)
               .requires_grad());
  }
}

TEST_CASE("the same bits each time") {
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({4, 24, 14, 14}).contiguous(kLast), up = torch::randn({4, 16, 14, 14});
  at::Tensor first;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor w = torch::ones({16, 24, 3, 3}).contiguous(kLast).requires_grad_();
    lowered_conv2d(x, w, 1, 1).backward(up);
    if (!first.defined()) first = w.grad();
    CHECK(w.grad().equal(first));
  }
}

TEST_CASE("a step's gradient is taken over without a copy") {
  const at::Tensor x = torch::randn({4, 24, 6, 6}).contiguous(kLast), w = torch::randn({16, 24, 3, 3}).contiguous(kLast).requires_grad_();
  lowered_conv2d(x, w, 1, 1).sum().backward();
  CHECK(w.grad().is_contiguous(kLast));
  lowered_conv2d(x, w, 1, 1).sum().backward();  // adds the next gradient
  const at::Tensor once = torch::conv2d(x, torch::zeros({16, 24, 3, 3}).requires_grad_(), {}, 1, 1);
  at::Tensor fresh = w.detach().clone().requires_grad_();
  torch::conv2d(x, fresh, {}, 1, 1).sum().backward();
  CHECK(w.grad().allclose(fresh.grad() * 2, 1e-4, 1e-3));
}

TEST_CASE("autocast, other types and refusals are the library's") {
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({2, 8, 6, 6}).contiguous(kLast), w = torch::randn({4, 8, 1, 1}).contiguous(kLast);
  const at::Tensor wide = lowered_conv2d(x.to(at::kDouble), w.to(at::kDouble));
  CHECK((wide.scalar_type() == at::kDouble));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor low = lowered_conv2d(x, w);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK((low.scalar_type() == at::kBFloat16));
  // The reference has the exact products of rounded numbers. The sum of its 8 terms is rounded once.
  const auto rounded = [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kDouble); };
  CHECK(reference::spacings_apart(low, reference::Array(torch::conv2d(rounded(x), rounded(w))), at::kBFloat16) <= 0.5001);

  CHECK_THROWS_AS(lowered_conv2d(x, torch::randn({4, 7, 1, 1})), Error);
  CHECK_THROWS_AS(lowered_conv2d(x, torch::randn({4, 8, 9, 9}).contiguous(kLast)), Error);
  CHECK_THROWS_AS(lowered_conv2d(x, w, 0), Error);
  CHECK_THROWS_AS(lowered_conv2d({}, w), Error);

  const at::Tensor tracked = w.clone().requires_grad_();
  const at::Tensor y = lowered_conv2d(x, tracked);
  testing::check_no_double_backward(y, tracked);
}

TEST_CASE("bf16 by the processor, in a region and in tensors of bf16: products of rounded inputs, rounded once") {
  for (const auto& s : std::vector<Sizes>{{3, 16, 9, 8, 24, 1, 1, 0},
                                          {3, 16, 9, 8, 24, 1, 2, 0},
                                          {3, 40, 7, 7, 24, 1, 1, 0},
                                          {7, 40, 2, 2, 24, 3, 1, 1},
                                          {7, 40, 1, 1, 24, 3, 1, 1},
                                          {3, 256, 5, 4, 256, 3, 2, 1},
                                          {3, 16, 9, 8, 24, 3, 1, 1}}) {
    for (const bool region : {false, true}) {
      CAPTURE(s.h);
      CAPTURE(s.kernel);
      CAPTURE(region);
      torch::manual_seed(6);
      const auto low = [](const at::Tensor& t) { return t.contiguous(kLast).to(at::kBFloat16); };
      at::Tensor x = low(torch::randn({s.n, s.c, s.h, s.w})), w = low(torch::randn({s.k, s.c, s.kernel, s.kernel}));
      at::Tensor x64 = x.to(at::kDouble).requires_grad_(), w64 = w.to(at::kDouble).requires_grad_();
      if (region) x = x.to(at::kFloat), w = w.to(at::kFloat);
      x.requires_grad_();
      w.requires_grad_();
      at::Tensor y;
      {
        const Autocast native(Device{}, at::kBFloat16, region, true, CpuLowPrecision::Native);
        y = lowered_conv2d(x, w, s.stride, s.padding);
      }
      const at::Tensor want = in_double(s, x64, w64), up = low(torch::randn(want.sizes()));
      REQUIRE((y.scalar_type() == at::kBFloat16));
      CHECK(largest_error(y.detach(), want) < 0.004);
      const auto got = torch::autograd::grad({y}, {x, w}, {up}), exact = torch::autograd::grad({want}, {x64, w64}, {up.to(at::kDouble)});
      CHECK((got[1].scalar_type() == w.scalar_type()));
      CHECK(largest_error(got[0], exact[0]) < 0.01);  // without units for bf16, libtorch adds taps in bf16
      CHECK(largest_error(got[1], exact[1]) < 0.004);
    }
  }
}

TEST_CASE("one product for each tap: any shape, in fp32 and bf16") {
  torch::manual_seed(7);
  for (const auto& s : std::vector<Sizes>{{3, 10, 5, 4, 6, 3, 1, 1},
                                          {3, 10, 5, 4, 6, 3, 2, 1},
                                          {3, 10, 2, 2, 6, 3, 5, 3},
                                          {3, 10, 1, 4, 6, 5, 2, 2},
                                          {2, 3, 11, 8, 6, 7, 2, 3},
                                          {2, 3, 6, 7, 6, 2, 3, 0}}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      CAPTURE(s.h);
      CAPTURE(s.kernel);
      CAPTURE(s.stride);
      const auto made = [dtype](at::IntArrayRef sizes) { return torch::randn(sizes).to(dtype).contiguous(kLast); };
      const at::Tensor x = made({s.n, s.c, s.h, s.w}), w = made({s.k, s.c, s.kernel, s.kernel});
      const at::Tensor w64 = w.to(at::kDouble).requires_grad_(), want = in_double(s, x.to(at::kDouble), w64), dy = made(want.sizes());
      const auto exact = torch::autograd::grad({want}, {w64}, {dy.to(at::kDouble)});
      const at::Tensor got = detail::taps::weight_gradient(detail::ConvShape(x, w, s.stride, s.padding), dy, x);
      CHECK((got.scalar_type() == dtype));
      CHECK(got.is_contiguous(kLast));
      CHECK(largest_error(got, exact[0]) < (dtype == at::kFloat ? 4e-6 : 0.004));
    }
  }
}

// For these shapes, libtorch's bf16 weight gradient reads uninitialised memory; here that memory is full of NaN.
TEST_CASE("bf16 on maps narrower than the stride: right gradients, lowered or not, with a bias or without") {
  const auto litter = [] {
    for (const int64_t count : {500, 4000, 5000, 20000, 60000, 200000}) torch::full({count}, std::nanf(""));
  };
  torch::manual_seed(9);
  for (const auto& s : std::vector<Sizes>{{5, 16, 1, 1, 32, 3, 2, 1},
                                          {5, 64, 1, 1, 64, 2, 2, 1},
                                          {5, 64, 2, 1, 64, 3, 2, 1},
                                          {2, 64, 4, 2, 64, 5, 3, 2},
                                          {5, 64, 2, 2, 64, 3, 3, 1},
                                          {5, 64, 3, 3, 64, 7, 4, 3},
                                          {2, 3, 6, 2, 5, 7, 3, 4}})
    for (const auto format : {at::MemoryFormat::Contiguous, kLast})
      for (const bool region : {false, true})
        for (const bool biased : {false, true})
          for (const bool lowered : {false, true}) {
            if (lowered && biased) continue;
            CAPTURE(s.h);
            CAPTURE(s.w);
            CAPTURE(s.kernel);
            CAPTURE(lowered);
            CAPTURE(biased);
            Conv2d conv(
                {.in = s.c, .out = s.k, .kernel = s.kernel, .stride = s.stride, .padding = s.padding, .bias = biased, .lowered = lowered});
            const auto low = [&](at::Tensor t) { return (region ? t : t.to(at::kBFloat16)).contiguous(format).requires_grad_(); };
            const auto rounded = [](const at::Tensor& t) { return t.detach().to(at::kBFloat16).to(at::kDouble).requires_grad_(); };
            conv.weight = low(torch::randn({s.k, s.c, s.kernel, s.kernel}) / 12);
            if (biased) conv.bias = (region ? torch::randn({s.k}) : torch::randn({s.k}).to(at::kBFloat16)).requires_grad_();
            const at::Tensor x = low(torch::randn({s.n, s.c, s.h, s.w}));
            const at::Tensor x64 = rounded(x), w64 = rounded(conv.weight), b64 = biased ? rounded(conv.bias) : at::Tensor();
            const at::Tensor want = torch::conv2d(x64, w64, b64, s.stride, s.padding), up = torch::randn(want.sizes()).to(at::kBFloat16);
            want.backward(up.to(at::kDouble));
            for (int i = 0; i < 8; ++i) {
              for (auto& t : {x, conv.weight}) t.mutable_grad().reset();
              if (biased) conv.bias.mutable_grad().reset();
              at::Tensor y;
              {
                const Autocast native(Device{}, at::kBFloat16, region, true, CpuLowPrecision::Native);
                litter();
                y = conv.forward(x);
              }
              REQUIRE((y.scalar_type() == at::kBFloat16));
              litter();
              y.backward(up);
              CHECK(largest_error(y.detach(), want) < 0.01);
              CHECK(largest_error(x.grad(), x64.grad()) < 0.01);
              REQUIRE(largest_error(conv.weight.grad(), w64.grad()) < 0.01);  // false for NaN
              CHECK((conv.weight.grad().scalar_type() == conv.weight.scalar_type()));
              if (biased) CHECK(largest_error(conv.bias.grad(), b64.grad()) < 0.01);
            }
          }
}

TEST_CASE("regions of the host program inside ours are the library's") {
  torch::manual_seed(8);
  const at::Tensor x = torch::randn({2, 8, 2, 2}).contiguous(kLast), w = torch::randn({4, 8, 1, 1}).contiguous(kLast);
  const Autocast ours(Device{}, at::kHalf, true, true, CpuLowPrecision::Emulated);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK((lowered_conv2d(x, w).scalar_type() == at::kFloat));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  CHECK((lowered_conv2d(x, w).scalar_type() == at::kBFloat16));
}

TEST_CASE("inside an emulating region: rounded inputs, fp32 products, one rounding, low precision kept") {
  const struct {
    int64_t in, out, side, kernel, stride, padding;
  } cases[] = {{16, 24, 8, 1, 1, 0}, {16, 24, 8, 1, 2, 0}, {8, 16, 9, 3, 2, 1}, {16, 16, 2, 3, 1, 1}, {3, 8, 14, 7, 2, 3}};
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto& c : cases) {
      CAPTURE(c.kernel);
      CAPTURE(c.side);
      at::manual_seed(5);
      const auto last = at::MemoryFormat::ChannelsLast;
      at::Tensor x = at::randn({3, c.in, c.side, c.side}).contiguous(last).requires_grad_(true);
      at::Tensor w = at::randn({c.out, c.in, c.kernel, c.kernel}).contiguous(last).requires_grad_(true);
      at::Tensor y;
      {
        const Autocast region(Device{}, dtype, true, true, CpuLowPrecision::Emulated);
        y = lowered_conv2d(x, w, c.stride, c.padding);
      }
      REQUIRE((y.scalar_type() == dtype));
      const at::Tensor dy = at::randn_like(y);
      y.backward(dy);
      at::Tensor rx = x.detach().to(dtype).to(at::kFloat).requires_grad_(true),
                 rw = w.detach().to(dtype).to(at::kFloat).requires_grad_(true);
      const at::Tensor expected = lowered_conv2d(rx, rw, c.stride, c.padding);
      expected.backward(dy.to(at::kFloat));
      CHECK(at::equal(y, expected.to(dtype)));
      CHECK(at::equal(x.grad(), rx.grad().to(dtype).to(at::kFloat)));
      CHECK(at::equal(w.grad(), rw.grad().to(dtype).to(at::kFloat)));
    }
  }
}

}  // namespace
}  // namespace npu_train
