// Transforms that change values, for complete batches. Each operation rounds like the host's; therefore operations must not be fused.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/data/device_augment.hpp"
#include "npu_train/data/image_transforms.hpp"

namespace npu_train {
namespace {

/// Returns the brightness of each pixel, [N, 1, H, W], in the host's fixed point; the sums are below 2^24 and therefore exact in fp32.
at::Tensor luma_of(const at::Tensor& pixels) {
  if (pixels.size(1) < 3) return pixels.narrow(1, 0, 1);
  const auto part = [&](int64_t c, double weight) { return pixels.narrow(1, c, 1).mul(weight); };
  return part(0, 19595).add_(part(1, 38470)).add_(part(2, 7471)).add_(0x8000).mul_(0x1.0p-16).floor_();
}

/// Returns the mean of each image, [N, 1, 1, 1], rounded to an integer: floor(sum / n + 1 / 2) in integer arithmetic.
at::Tensor mean_of(const at::Tensor& luma) {
  const int64_t n = luma.size(2) * luma.size(3);
  const auto dtype = n < 4'000'000 ? at::kInt : at::kLong;  // twice the sum of n bytes must fit
  const auto rows = luma.sum({3}, /*keepdim=*/true).to(dtype);
  return rows.sum({2}, /*keepdim=*/true, dtype).mul_(2).add_(n).floor_divide_(2 * n).to(at::kFloat);
}

/// Returns how far a channel is below the brightest one, 0 to 1, at `turn6` sixths of the circle.
at::Tensor hue_depth(const at::Tensor& turn6) {
  const auto k = turn6.sub(turn6.mul(static_cast<double>(1.0f / 6.0f)).trunc_().mul_(6));
  return at::minimum(k, k.neg().add_(4)).clamp_(0, 1);
}

/// Returns the first three channels with the hue shifted by `shift6` [N, 1, 1] sixths of the circle.
at::Tensor turned(const at::Tensor& pixels, const at::Tensor& shift6) {
  const at::Tensor r = pixels.select(1, 0), g = pixels.select(1, 1), b = pixels.select(1, 2);
  const auto high = at::maximum(r, at::maximum(g, b));
  const auto chroma = high.sub(at::minimum(r, at::minimum(g, b)));
  const at::Tensor is_r = high.eq(r), is_g = high.eq(g);
  auto hue = at::where(is_r, g.sub(b), at::where(is_g, b.sub(r), r.sub(g)));
  const auto sector = at::full_like(high, 4).masked_fill_(is_g, 2).masked_fill_(is_r, 0);
  hue.div_(chroma.clamp_min(1)).add_(sector).add_(shift6).add_(6);  // an additional turn keeps it positive
  const auto top = high.add(0.5);
  const auto channel = [&](double place) { return top.sub(hue_depth(hue.add(place)).mul_(chroma)).trunc_(); };
  return at::stack({channel(5), channel(3), channel(1)}, 1);
}

/// The draws of an image are its enabled changes, in order: kind and amount of each.
class BatchJitter final : public DeviceForm {
 public:
  BatchJitter(const ColorJitter& jitter, int64_t channels) : jitter_(jitter) {
    for (int change = 0; change < ColorJitter::kChanges; ++change)
      does_[change] = jitter.does(change) && (channels >= 3 || change == ColorJitter::Brightness || change == ColorJitter::Contrast);
    slots_ = std::count(std::begin(does_), std::end(does_), true);
  }
  int64_t floats() const override { return slots_; }
  int64_t integers() const override { return slots_; }
  void draw(Philox& rng, float* floats, int32_t* integers) const override {
    const auto drawn = jitter_.draw(rng);
    for (const int change : drawn.order) {
      if (!does_[change]) continue;
      const float amount = drawn.amount[static_cast<size_t>(change)];
      *floats++ = change == ColorJitter::Hue ? amount * 6.0f : amount;
      *integers++ = change;
    }
  }
  at::Tensor apply(at::Tensor pixels, const at::Tensor& floats, const at::Tensor& integers) const override {
    for (int64_t slot = 0; slot < slots_; ++slot)
      pixels = changed(pixels, integers.select(1, slot).reshape({-1, 1, 1, 1}), floats.select(1, slot).reshape({-1, 1, 1, 1}));
    return pixels;
  }

 private:
  /// Applies each image's own change. All kinds of change are computed for all images, so that shapes are fixed and no value is read back.
  at::Tensor changed(const at::Tensor& pixels, const at::Tensor& change, const at::Tensor& amount) const {
    const auto is = [&](int which) { return change.eq(which); };
    at::Tensor from, luma;  // second operand of the blend: zero, the image's mean, or its brightness
    if (does_[ColorJitter::Contrast] || does_[ColorJitter::Saturation]) luma = luma_of(pixels);
    if (does_[ColorJitter::Contrast]) from = mean_of(luma).mul_(is(ColorJitter::Contrast).to(at::kFloat));
    if (does_[ColorJitter::Saturation]) {
      const auto gray = luma.mul(is(ColorJitter::Saturation).to(at::kFloat));
      from = from.defined() ? gray.add(from) : gray;
    }
    auto out = from.defined() ? pixels.sub(from).mul_(amount).add_(from) : pixels.mul(amount);
    out.clamp_(0, 255).trunc_();
    if (pixels.size(1) == 4 && does_[ColorJitter::Saturation])  // alpha is unchanged
      out.select(1, 3).copy_(at::where(is(ColorJitter::Saturation).squeeze(1), pixels.select(1, 3), out.select(1, 3)));
    if (!does_[ColorJitter::Hue]) return out;
    auto turn = turned(pixels, amount.squeeze(1));
    if (pixels.size(1) == 4) turn = at::cat({turn, pixels.narrow(1, 3, 1)}, 1);
    return at::where(is(ColorJitter::Hue), turn, out);
  }

  ColorJitter jitter_;
  bool does_[ColorJitter::kChanges] = {};
  int64_t slots_ = 0;
};

/// The draws of an image are the weights of its blur kernel.
class BatchBlur final : public DeviceForm {
 public:
  explicit BatchBlur(const GaussianBlur& blur) : blur_(blur) {}
  int64_t floats() const override { return blur_.kernel(); }
  void draw(Philox& rng, float* floats, int32_t* /*integers*/) const override {
    const auto weights = gaussian_weights(blur_.kernel(), blur_.draw(rng));
    std::copy(weights.begin(), weights.end(), floats);
  }
  at::Tensor apply(at::Tensor pixels, const at::Tensor& floats, const at::Tensor& /*integers*/) const override {
    return along(along(pixels, 3, floats), 2, floats).add_(0.5).clamp_max_(255).trunc_();
  }

 private:
  /// Blurs along one dimension. A convolution would not sum in the same order as the host.
  at::Tensor along(const at::Tensor& pixels, int64_t dim, const at::Tensor& weights) const {
    const int64_t n = pixels.size(dim), radius = blur_.kernel() / 2;
    const auto wide = pixels.index_select(dim, mirrored(n, radius, pixels));
    at::Tensor sum;
    for (int64_t k = 0; k < blur_.kernel(); ++k) {
      const auto part = wide.narrow(dim, k, n).mul(weights.select(1, k).reshape({-1, 1, 1, 1}));
      sum = sum.defined() ? sum.add_(part) : part;
    }
    return sum;
  }

  /// Returns the indices -radius, ..., n - 1 + radius, mirrored at the edges repeatedly if needed; the edge itself is not repeated.
  static at::Tensor mirrored(int64_t n, int64_t radius, const at::Tensor& other) {
    const auto i = at::arange(-radius, n + radius, other.options().dtype(at::kLong));
    if (n == 1) return i.mul(0);
    return i.remainder(2 * (n - 1)).sub_(n - 1).abs_().neg_().add_(n - 1);
  }

  GaussianBlur blur_;
};

}  // namespace

std::shared_ptr<const DeviceForm> ColorJitter::device_form(int64_t channels, ImageSize /*in*/) const {
  return std::make_shared<BatchJitter>(*this, channels);
}

std::shared_ptr<const DeviceForm> GaussianBlur::device_form(int64_t /*channels*/, ImageSize /*in*/) const {
  return std::make_shared<BatchBlur>(*this);
}

}  // namespace npu_train
