#include "npu_train/data/image_transforms.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "data/affine.hpp"
#include "data/pixels/image_kernels.hpp"

namespace npu_train {
namespace {

void check_side(int64_t size, const char* where) {
  check(size >= 1 && size <= 8192, ErrorKind::Usage, where, "size is ", size, "; it must be from 1 to 8192");
}

}  // namespace

Resize::Resize(int64_t shorter_side, Resampling how) : height_(shorter_side), width_(0), how_(how) { check_side(shorter_side, "Resize"); }
Resize::Resize(int64_t height, int64_t width, Resampling how) : height_(height), width_(width), how_(how) {
  check_side(height, "Resize");
  check_side(width, "Resize");
}

ImageSize Resize::output_size(ImageSize in) const {
  if (width_ > 0) return {height_, width_};
  const auto [h, w] = in;
  if (h < 0 || w < 0) return {-1, -1};
  return h <= w ? ImageSize{height_, height_ * w / h} : ImageSize{height_ * h / w, height_};
}

Image Resize::apply(Image image, Philox& rng) const {
  const auto [h, w] = output_size({image.height(), image.width()});
  return resize(image, h, w, how_);
}

Image Resize::apply_encoded(const std::vector<uint8_t>& file, const std::string& where, Philox& rng) const {
  if (how_.exact) return apply(decode_image(file, where), rng);
  const auto header = read_header(file, where);
  const auto [h, w] = output_size({header.height, header.width});
  const auto part = decode_box(file, where, {0, 0, header.height, header.width}, h, w);
  return resize(part.image, h, w, how_, part.y0, part.x0, part.y1, part.x1);
}

CenterCrop::CenterCrop(int64_t size) : size_(size) { check_side(size, "CenterCrop"); }

PixelBox CenterCrop::window(int64_t height, int64_t width) const {
  // The start is rounded half to even, as by Python's round() in torchvision, to select the same pixels; the amount of padding is rounded
  // down.
  const auto start = [this](int64_t side) {
    const int64_t rest = side - size_;
    if (rest < 0) return -((-rest) / 2);
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(rest) / 2.0));
  };
  return {start(height), start(width), size_, size_};
}

Image CenterCrop::apply(Image image, Philox& /*rng*/) const {
  const PixelBox box = window(image.height(), image.width());
  return image.crop(box.top, box.left, box.height, box.width);
}

RandomCrop::RandomCrop(int64_t size, int64_t padding) : size_(size), padding_(padding) {
  check_side(size, "RandomCrop");
  check(padding >= 0 && padding <= 8192, ErrorKind::Usage, "RandomCrop", "padding is ", padding, "; it must be from 0 to 8192");
}

PixelBox RandomCrop::draw(int64_t height, int64_t width, Philox& rng) const {
  const int64_t rows = height + 2 * padding_ - size_;
  const int64_t cols = width + 2 * padding_ - size_;
  check(rows >= 0 && cols >= 0, ErrorKind::Data, "RandomCrop", "an image of ", width, " x ", height, " with a padding of ", padding_,
        " is smaller than the crop window of ", size_, "; hint: put a resize before the crop");
  const int64_t top = rng.below(static_cast<uint32_t>(rows + 1));
  const int64_t left = rng.below(static_cast<uint32_t>(cols + 1));
  return {top - padding_, left - padding_, size_, size_};
}

Image RandomCrop::apply(Image image, Philox& rng) const {
  const PixelBox box = draw(image.height(), image.width(), rng);
  return image.crop(box.top, box.left, box.height, box.width);
}

RandomResizedCrop::RandomResizedCrop(int64_t size, double min_scale, double max_scale, double min_ratio, double max_ratio, Resampling how)
    : size_(size),
      min_scale_(min_scale),
      max_scale_(max_scale),
      min_log_ratio_(std::log(min_ratio)),
      max_log_ratio_(std::log(max_ratio)),
      how_(how) {
  check_side(size, "RandomResizedCrop");
  check(min_scale > 0 && min_scale <= max_scale && max_scale <= 1, ErrorKind::Usage, "RandomResizedCrop", "scale is [", min_scale, ", ",
        max_scale, "]; the limits must be in (0, 1] and in ascending order");
  check(min_ratio > 0 && min_ratio <= max_ratio && std::isfinite(max_ratio), ErrorKind::Usage, "RandomResizedCrop", "ratio is [", min_ratio,
        ", ", max_ratio, "]; the limits must be positive and in ascending order");
}

PixelBox RandomResizedCrop::draw(int64_t height, int64_t width, Philox& rng) const {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * (min_scale_ + (max_scale_ - min_scale_) * rng.uniform());
    const double ratio = std::exp(min_log_ratio_ + (max_log_ratio_ - min_log_ratio_) * rng.uniform());
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(target * ratio)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(target / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int64_t top = rng.below(static_cast<uint32_t>(height - h + 1));
    const int64_t left = rng.below(static_cast<uint32_t>(width - w + 1));
    return {top, left, h, w};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t h = height, w = width;
  if (ratio < std::exp(min_log_ratio_)) {
    h = std::clamp<int64_t>(static_cast<int64_t>(std::nearbyint(static_cast<double>(width) / std::exp(min_log_ratio_))), 1, height);
  } else if (ratio > std::exp(max_log_ratio_)) {
    w = std::clamp<int64_t>(static_cast<int64_t>(std::nearbyint(static_cast<double>(height) * std::exp(max_log_ratio_))), 1, width);
  }
  return {(height - h) / 2, (width - w) / 2, h, w};
}

Image RandomResizedCrop::apply(Image image, Philox& rng) const {
  const PixelBox box = draw(image.height(), image.width(), rng);
  return resize(image.crop(box.top, box.left, box.height, box.width), size_, size_, how_);
}

Image RandomResizedCrop::apply_encoded(const std::vector<uint8_t>& file, const std::string& where, Philox& rng) const {
  if (how_.exact) return apply(decode_image(file, where), rng);
  const auto header = read_header(file, where);
  const PixelBox box = draw(header.height, header.width, rng);
  const auto part = decode_box(file, where, box, size_, size_);
  return resize(part.image, size_, size_, how_, part.y0, part.x0, part.y1, part.x1);
}

Image HorizontalFlip::apply(Image image, Philox& rng) const { return draw(rng) ? image.mirrored() : image; }

Image RandomRotation::apply(Image image, Philox& rng) const { return rotate_nearest(image, draw(rng)); }

namespace detail {

FixedMap::FixedMap(const AffineMap& map, int64_t height, int64_t width) : map_(map) {
  const auto& m = map.m;
  // Chooses the number of fractional bits, at most 16, so that the farthest position that a row can reach still fits.
  const double reach = (std::abs(m[0]) + std::abs(m[3])) * static_cast<double>(width) +
                       (std::abs(m[1]) + std::abs(m[4])) * static_cast<double>(height) + std::abs(m[2]) + std::abs(m[5]) + 1.0;
  check(reach < 0x1.0p28, ErrorKind::Usage, "affine_nearest", "the map leads ", reach, " pixels away");
  while (std::ldexp(reach, bits_) >= 0x1.0p30) --bits_;
}

int32_t FixedMap::fixed(double value) const { return static_cast<int32_t>(std::floor(std::ldexp(value, bits_) + 0.5)); }

AffineMap rotation_map(double degrees, int64_t height, int64_t width) {
  const double angle = -degrees * std::numbers::pi / 180.0;
  const double c = std::cos(angle), s = std::sin(angle);
  const double cx = static_cast<double>(width) / 2.0, cy = static_cast<double>(height) / 2.0;
  return {{c, s, cx - c * cx - s * cy, -s, c, cy + s * cx - c * cy}};
}

}  // namespace detail

Image affine_nearest(const Image& image, const double (&m)[6], uint8_t fill) {
  const Image in = image.dense(PixelOrder::Planar);
  const int64_t h = in.height(), w = in.width();
  Image out = Image::allocate(h, w, in.channels());
  const auto& kernels = detail::image_kernels();
  std::vector<int32_t> index(w);
  const detail::FixedMap map({{m[0], m[1], m[2], m[3], m[4], m[5]}}, h, w);
  for (int64_t y = 0; y < h; ++y) {
    kernels.map_row(map.x_start(y), map.y_start(y), map.x_step(), map.y_step(), map.bits(), w, static_cast<int32_t>(w),
                    static_cast<int32_t>(h), index.data());
    for (int64_t c = 0; c < in.channels(); ++c) {
      const uint8_t* src = in.plane(c);
      uint8_t* dst = out.mutable_plane(c) + y * w;
      for (int64_t x = 0; x < w; ++x) dst[x] = index[x] < 0 ? fill : src[index[x]];
    }
  }
  return out;
}

Image rotate_nearest(const Image& image, double degrees, uint8_t fill) {
  return affine_nearest(image, detail::rotation_map(degrees, image.height(), image.width()).m, fill);
}

}  // namespace npu_train
