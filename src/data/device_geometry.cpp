// Transforms that move pixels, for complete batches.
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include "data/affine.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/device_augment.hpp"
#include "npu_train/data/image_transforms.hpp"

namespace npu_train {
namespace {

/// Returns 0, 1, ..., n - 1 on the device of `other`.
at::Tensor numbers(int64_t n, at::ScalarType dtype, const at::Tensor& other) { return at::arange(n, other.options().dtype(dtype)); }

class Unchanged final : public DeviceForm {
 public:
  at::Tensor apply(at::Tensor pixels, const at::Tensor& /*floats*/, const at::Tensor& /*integers*/) const override { return pixels; }
};

class BatchCenterCrop final : public DeviceForm {
 public:
  BatchCenterCrop(const PixelBox& window, ImageSize in)
      : pad_{-window.left, window.left + window.width - in.second, -window.top, window.top + window.height - in.first} {}
  at::Tensor apply(at::Tensor pixels, const at::Tensor& /*floats*/, const at::Tensor& /*integers*/) const override {
    return at::constant_pad_nd(pixels, pad_, 0).contiguous();  // negative padding crops
  }

 private:
  std::array<int64_t, 4> pad_;  // left, right, top, bottom
};

class BatchRandomCrop final : public DeviceForm {
 public:
  BatchRandomCrop(const RandomCrop& crop, int64_t padding, ImageSize in) : crop_(crop), padding_(padding), in_(in) {}
  int64_t integers() const override { return 2; }
  void draw(Philox& rng, float* /*floats*/, int32_t* integers) const override {
    const PixelBox box = crop_.draw(in_.first, in_.second, rng);
    integers[0] = static_cast<int32_t>(box.top + padding_);
    integers[1] = static_cast<int32_t>(box.left + padding_);
  }
  at::Tensor apply(at::Tensor pixels, const at::Tensor& /*floats*/, const at::Tensor& integers) const override {
    if (padding_ > 0) pixels = at::constant_pad_nd(pixels, {padding_, padding_, padding_, padding_}, 0);
    const int64_t n = pixels.size(0), c = pixels.size(1), side = crop_.output_size(in_).first;
    const auto window = [&](int64_t which) {
      return integers.select(1, which).to(at::kLong).unsqueeze(1).add(numbers(side, at::kLong, pixels).unsqueeze(0));
    };
    const auto rows = window(0).view({n, 1, side, 1}).expand({n, c, side, pixels.size(3)});
    const auto columns = window(1).view({n, 1, 1, side}).expand({n, c, side, side});
    return pixels.gather(2, rows).gather(3, columns);
  }

 private:
  RandomCrop crop_;
  int64_t padding_;
  ImageSize in_;
};

class BatchFlip final : public DeviceForm {
 public:
  explicit BatchFlip(const HorizontalFlip& flip) : flip_(flip) {}
  int64_t integers() const override { return 1; }
  void draw(Philox& rng, float* /*floats*/, int32_t* integers) const override { *integers = flip_.draw(rng) ? 1 : 0; }
  at::Tensor apply(at::Tensor pixels, const at::Tensor& /*floats*/, const at::Tensor& integers) const override {
    return at::where(integers.ne(0).view({-1, 1, 1, 1}), pixels.flip({3}), pixels);
  }

 private:
  HorizontalFlip flip_;
};

/// The draws of an image describe its FixedMap: fractional bits, steps in x and y, then the start of each row in x and in y.
class BatchRotation final : public DeviceForm {
 public:
  BatchRotation(const RandomRotation& rotation, ImageSize in) : rotation_(rotation), height_(in.first), width_(in.second) {}
  int64_t integers() const override { return 3 + 2 * height_; }
  void draw(Philox& rng, float* /*floats*/, int32_t* integers) const override {
    const detail::FixedMap map(detail::rotation_map(rotation_.draw(rng), height_, width_), height_, width_);
    integers[0] = map.bits();
    integers[1] = map.x_step();
    integers[2] = map.y_step();
    for (int64_t y = 0; y < height_; ++y) {
      integers[3 + y] = map.x_start(y);
      integers[3 + height_ + y] = map.y_start(y);
    }
  }
  at::Tensor apply(at::Tensor pixels, const at::Tensor& /*floats*/, const at::Tensor& integers) const override {
    const int64_t n = pixels.size(0), c = pixels.size(1), area = height_ * width_;
    const auto bits = integers.narrow(1, 0, 1).unsqueeze(2);
    const auto walk = [&](int64_t step, int64_t start) {
      const auto steps = integers.narrow(1, step, 1).unsqueeze(2).mul(numbers(width_, at::kInt, pixels));
      return at::bitwise_right_shift(integers.narrow(1, start, height_).unsqueeze(2).add(steps), bits);
    };
    const at::Tensor x = walk(1, 3), y = walk(2, 3 + height_);
    const auto inside = x.ge(0).logical_and_(x.lt(width_)).logical_and_(y.ge(0)).logical_and_(y.lt(height_));
    // Positions outside read one additional pixel, which is 0.
    const auto index = at::where(inside, y.mul(width_).add_(x), at::full({1}, area, x.options())).to(at::kLong);
    const auto flat = at::constant_pad_nd(pixels.reshape({n, c, area}), {0, 1}, 0);
    return flat.gather(2, index.view({n, 1, area}).expand({n, c, area})).view({n, c, height_, width_});
  }

 private:
  RandomRotation rotation_;
  int64_t height_, width_;
};

class BatchErasing final : public DeviceForm {
 public:
  BatchErasing(RandomErasing erasing, ImageSize in) : erasing_(std::move(erasing)), in_(in) {}
  int64_t integers() const override { return 4; }
  void draw(Philox& rng, float* /*floats*/, int32_t* integers) const override {
    const PixelBox box = erasing_.draw(in_.first, in_.second, rng).value_or(PixelBox{});
    const int64_t ends[] = {box.top, box.top + box.height, box.left, box.left + box.width};
    for (int i = 0; i < 4; ++i) integers[i] = static_cast<int32_t>(ends[i]);
  }
  at::Tensor apply(at::Tensor pixels, const at::Tensor& /*floats*/, const at::Tensor& integers) const override {
    const auto between = [&](int64_t n, int64_t begin) {
      const auto i = numbers(n, at::kInt, pixels).unsqueeze(0);
      return i.ge(integers.narrow(1, begin, 1)).logical_and_(i.lt(integers.narrow(1, begin + 1, 1)));
    };
    const auto box = between(in_.first, 0).unsqueeze(2).logical_and(between(in_.second, 2).unsqueeze(1));
    for (int64_t c = 0; c < pixels.size(1); ++c) pixels.select(1, c).masked_fill_(box, static_cast<double>(erasing_.fill(c)));
    return pixels;
  }

 private:
  RandomErasing erasing_;
  ImageSize in_;
};

}  // namespace

std::shared_ptr<const DeviceForm> Resize::device_form(int64_t /*channels*/, ImageSize in) const {
  return output_size(in) == in ? std::make_shared<Unchanged>() : nullptr;
}

std::shared_ptr<const DeviceForm> CenterCrop::device_form(int64_t /*channels*/, ImageSize in) const {
  return std::make_shared<BatchCenterCrop>(window(in.first, in.second), in);
}

std::shared_ptr<const DeviceForm> RandomCrop::device_form(int64_t /*channels*/, ImageSize in) const {
  return std::make_shared<BatchRandomCrop>(*this, padding_, in);
}

std::shared_ptr<const DeviceForm> HorizontalFlip::device_form(int64_t /*channels*/, ImageSize /*in*/) const {
  return std::make_shared<BatchFlip>(*this);
}

std::shared_ptr<const DeviceForm> RandomRotation::device_form(int64_t /*channels*/, ImageSize in) const {
  return std::make_shared<BatchRotation>(*this, in);
}

std::shared_ptr<const DeviceForm> RandomErasing::device_form(int64_t /*channels*/, ImageSize in) const {
  return std::make_shared<BatchErasing>(*this, in);
}

}  // namespace npu_train
