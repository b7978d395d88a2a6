#include "npu_train/data/image.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "data/pixels/image_kernels.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr int64_t kColours = 3;

struct Span {
  int64_t begin, end;
};

/// Returns the columns of the window that show stored pixels.
Span columns(int64_t left, int64_t width, int64_t x0, int64_t x1, bool mirrored) {
  const int64_t begin = mirrored ? left + width - x1 : x0 - left;
  const int64_t end = mirrored ? left + width - x0 : x1 - left;
  const int64_t a = std::clamp<int64_t>(begin, 0, width);
  return {a, std::clamp<int64_t>(end, a, width)};
}

/// Keeps a few freed buffers per thread. Buffers are allocated and freed several times per image; returning their pages to the system and
/// requesting new ones costs more than many transforms.
class BufferCache {
 public:
  static std::shared_ptr<uint8_t[]> take(size_t bytes) {
    auto* self = mine();
    if (bytes < kSmall || bytes > kLarge || self == nullptr) return std::make_shared_for_overwrite<uint8_t[]>(bytes);
    for (Buffer& kept : self->kept_) {
      if (kept.data == nullptr || kept.bytes < bytes || kept.bytes > 2 * bytes) continue;
      return owned(std::exchange(kept, {}));
    }
    return owned({new uint8_t[bytes], bytes});
  }

  ~BufferCache() {
    gone_ = true;
    for (const Buffer& buffer : kept_) delete[] buffer.data;
  }

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    size_t bytes = 0;
  };
  static constexpr size_t kSmall = size_t{32} << 10, kLarge = size_t{4} << 20;

  static std::shared_ptr<uint8_t[]> owned(Buffer buffer) {
    return {buffer.data, [bytes = buffer.bytes](uint8_t* data) { give_back({data, bytes}); }};
  }
  static void give_back(Buffer buffer) {
    auto* self = mine();
    if (self != nullptr) std::swap(self->kept_[self->next_++ % self->kept_.size()], buffer);
    delete[] buffer.data;
  }
  /// Returns null if the thread is ending and its cache has been destroyed.
  static BufferCache* mine() {
    if (gone_) return nullptr;
    thread_local BufferCache cache;
    return &cache;
  }

  std::array<Buffer, 4> kept_;
  size_t next_ = 0;
  inline static thread_local bool gone_ = false;
};

}  // namespace

Image Image::allocate(int64_t height, int64_t width, int64_t channels, PixelOrder order) {
  check(height > 0 && width > 0 && height <= kMaxPixels / width, ErrorKind::Data, "Image", "an image of ", width, " x ", height,
        " pixels; allowed: at least one and at most ", kMaxPixels);
  check(channels >= 1 && channels <= 4, ErrorKind::Data, "Image", "an image with ", channels, " channels; allowed: 1 to 4");
  Image out;
  const int64_t bytes = height * width * (order == PixelOrder::Packed ? 4 : channels);
  out.owner_ = BufferCache::take(static_cast<size_t>(bytes));
  out.data_ = out.owner_.get();
  out.order_ = order;
  out.channels_ = channels;
  out.pixel_stride_ = order == PixelOrder::Packed ? 4 : 1;
  out.row_stride_ = width * out.pixel_stride_;
  out.plane_stride_ = order == PixelOrder::Packed ? 1 : height * width;
  out.height_ = out.y1_ = height;
  out.width_ = out.x1_ = width;
  return out;
}

Image Image::view(const uint8_t* planes, int64_t height, int64_t width, int64_t channels) {
  Image out;
  out.data_ = planes;
  out.channels_ = channels;
  out.row_stride_ = width;
  out.plane_stride_ = height * width;
  out.height_ = out.y1_ = height;
  out.width_ = out.x1_ = width;
  return out;
}

Image Image::view(const ImageView& from) {
  constexpr const char* where = "ImageView";
  const auto& [data, height, width, channels, given_stride, layout, order] = from;
  check(data != nullptr, ErrorKind::Usage, where, "there are no pixels: data is null");
  check(height > 0 && width > 0 && height <= kMaxPixels / width, ErrorKind::Usage, where, "an image of ", width, " x ", height,
        " pixels; allowed: at least one and at most ", kMaxPixels);
  check(channels == 1 || channels == 3 || channels == 4, ErrorKind::Usage, where, "an image with ", channels,
        " channels; allowed: 1 (gray), 3 (colours), 4 (colours and alpha)");
  const bool planes = layout == ChannelLayout::Chw;
  const int64_t row = planes ? width : width * channels, stride = given_stride == 0 ? row : given_stride;
  const int64_t longest = std::numeric_limits<int64_t>::max() / (channels * height);
  check(stride >= row && stride <= longest, ErrorKind::Usage, where, "row_stride is ", given_stride, ", and a row has ", row,
        " bytes; allowed: that many to ", longest, ", from the beginning of a row to that of the next one; hint: 0 if rows have no gaps");
  const int64_t plane = planes ? height * stride : 1;
  const bool reversed = channels > 1 && order == ChannelOrder::Bgr;
  Image out;
  out.data_ = data + (reversed ? 2 * plane : 0);
  out.channels_ = kColours;
  out.plane_stride_ = channels == 1 ? 0 : (reversed ? -plane : plane);
  out.row_stride_ = stride;
  out.pixel_stride_ = planes ? 1 : channels;
  out.order_ = out.pixel_stride_ == 4 && out.plane_stride_ == 1 ? PixelOrder::Packed : PixelOrder::Planar;
  out.height_ = out.y1_ = height;
  out.width_ = out.x1_ = width;
  return out;
}

Image Image::crop(int64_t top, int64_t left, int64_t height, int64_t width) const {
  check(height > 0 && width > 0 && height <= kMaxPixels / width, ErrorKind::Data, "Image", "a window of ", width, " x ", height, " pixels");
  Image out = *this;
  out.y0_ = std::max(y0_, top_);
  out.y1_ = std::max(out.y0_, std::min(y1_, top_ + height_));
  out.x0_ = std::max(x0_, left_);
  out.x1_ = std::max(out.x0_, std::min(x1_, left_ + width_));
  out.top_ = top_ + top;
  out.left_ = mirrored_ ? left_ + width_ - left - width : left_ + left;
  out.height_ = height;
  out.width_ = width;
  return out;
}

Image Image::mirrored() const {
  Image out = *this;
  out.mirrored_ = !mirrored_;
  return out;
}

bool Image::is_dense(PixelOrder order) const {
  return order_ == order && !mirrored_ && top_ == 0 && left_ == 0 && y0_ == 0 && x0_ == 0 && y1_ == height_ && x1_ == width_ &&
         row_stride_ == width_ * pixel_stride_ &&
         (order_ == PixelOrder::Packed || (pixel_stride_ == 1 && plane_stride_ == height_ * width_));
}

Image Image::dense(PixelOrder order) const {
  if (is_dense(order)) return *this;
  Image out = allocate(height_, width_, channels_, order);
  auto* bytes = const_cast<uint8_t*>(out.data_);
  std::memset(bytes, 0, static_cast<size_t>(height_ * width_ * (order == PixelOrder::Packed ? 4 : channels_)));
  const Span span = columns(left_, width_, x0_, x1_, mirrored_);
  const int64_t n = span.end - span.begin;
  if (n == 0) return out;
  const int64_t step = mirrored_ ? -pixel_stride_ : pixel_stride_;
  const int64_t first = (mirrored_ ? left_ + width_ - 1 - span.begin : left_ + span.begin) * pixel_stride_;
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t y = std::max<int64_t>(0, y0_ - top_); y < std::min(height_, y1_ - top_); ++y) {
      const uint8_t* src = row(c, top_ + y) + first;
      uint8_t* dst = bytes + c * out.plane_stride_ + y * out.row_stride_ + span.begin * out.pixel_stride_;
      if (step == 1 && out.pixel_stride_ == 1) {
        std::memcpy(dst, src, static_cast<size_t>(n));
      } else {
        for (int64_t i = 0; i < n; ++i) dst[i * out.pixel_stride_] = src[i * step];
      }
    }
  }
  return out;
}

Image Image::own() && {
  if (is_dense(PixelOrder::Planar)) {
    if (owner_ != nullptr && owner_.use_count() == 1) return std::move(*this);
    Image copy = allocate(height_, width_, channels_);
    std::memcpy(copy.mutable_plane(0), data_, static_cast<size_t>(channels_ * height_ * width_));
    return copy;
  }
  return dense(PixelOrder::Planar);
}

uint8_t Image::at(int64_t channel, int64_t y, int64_t x) const {
  const int64_t sy = top_ + y;
  const int64_t sx = left_ + (mirrored_ ? width_ - 1 - x : x);
  if (sy < y0_ || sy >= y1_ || sx < x0_ || sx >= x1_) return 0;
  return row(channel, sy)[sx * pixel_stride_];
}

void write_floats(const Image& image, const FloatTarget& target, const float* scale, const float* shift) {
  check(image.height_ == target.height && image.width_ == target.width && (image.channels_ == target.channels || image.channels_ == 1),
        ErrorKind::Data, "Pipeline", "an image has size ", image.channels_, " x ", image.height_, " x ", image.width_, ", but ",
        target.channels, " x ", target.height, " x ", target.width,
        " is expected; hint: end the transforms with one that gives a fixed size");
  if (image.pixel_stride_ != 1) return write_floats(image.dense(PixelOrder::Planar), target, scale, shift);
  const int64_t h = target.height, w = target.width;
  const Span span = columns(image.left_, w, image.x0_, image.x1_, image.mirrored_);
  const int64_t n = span.end - span.begin;
  const int64_t first = image.mirrored_ ? image.left_ + w - 1 - span.begin : image.left_ + span.begin;
  const auto& kernels = detail::image_kernels();
  std::unique_ptr<float[]> line;
  if (target.channels_last) line = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(w));
  for (int64_t c = 0; c < target.channels; ++c) {
    for (int64_t y = 0; y < h; ++y) {
      float* dst = target.channels_last ? line.get() : target.data + (c * h + y) * w;
      const int64_t sy = image.top_ + y;
      if (sy < image.y0_ || sy >= image.y1_ || n == 0) {
        std::fill_n(dst, w, shift[c]);
      } else {
        const uint8_t* src = image.row(image.channels_ == 1 ? 0 : c, sy) + first;
        std::fill_n(dst, span.begin, shift[c]);
        (image.mirrored_ ? kernels.to_floats_backward : kernels.to_floats)(src, n, scale[c], shift[c], dst + span.begin);
        std::fill_n(dst + span.end, w - span.end, shift[c]);
      }
      if (target.channels_last) {
        float* out = target.data + y * w * target.channels + c;
        for (int64_t x = 0; x < w; ++x) out[x * target.channels] = dst[x];
      }
    }
  }
}

}  // namespace npu_train
