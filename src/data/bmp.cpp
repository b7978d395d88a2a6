// The format: "Bitmap Storage" and BITMAPINFOHEADER to BITMAPV5HEADER of Microsoft's documentation of Windows GDI, and BITMAPCOREHEADER.
// Where they leave a choice, pixels are those of Pillow (BmpImagePlugin).
#include "data/bmp.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

enum BmpCompression : uint32_t { kBmpRaw = 0, kBmpRle8 = 1, kBmpRle4 = 2, kBmpBitfields = 3 };
constexpr size_t kBmpFileHeader = 14;  // "BM", size of the file, two reserved numbers, offset of the pixels
constexpr uint32_t kCoreHeader = 12, kInfoHeader = 40, kOs2Header = 64;
constexpr uint32_t kBmpHeaders[] = {kCoreHeader, kInfoHeader, 52, 56, kOs2Header, 108, 124};
constexpr size_t kBmpMasks = kBmpFileHeader + kInfoHeader;  // offset of the bit masks: after this header, or inside longer ones
constexpr uint32_t kMostColors = 65536;                     // as in Pillow; pixels use 256 of them at most

class BmpReader {
 public:
  BmpReader(const std::vector<uint8_t>& file, const std::string& where) : file_(file), where_(where) {
    read_header();
    if (bits_ <= 8)
      read_palette();
    else
      read_masks();
  }
  ImageHeader header() const;
  Image decode() const;

 private:
  struct Channel {
    int shift = 0;
    uint64_t most = 0;
  };

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(ErrorKind::Data, "BMP", str_cat(where_, ": ", parts...), "the file is damaged or of a rare kind; convert it, or remove it");
  }
  void need(uint64_t offset, uint64_t bytes, const char* what) const {
    if (offset > file_.size() || bytes > file_.size() - offset)
      fail(what, " would be ", bytes, " bytes at offset ", offset, ", and the file has ", file_.size(), " bytes");
  }
  uint32_t number(size_t offset, int bytes) const {
    need(offset, static_cast<uint64_t>(bytes), "a part of the header");
    uint32_t out = 0;
    for (int i = 0; i < bytes; ++i) out |= uint32_t{file_[offset + static_cast<size_t>(i)]} << (8 * i);
    return out;
  }
  void read_header();
  void read_palette();
  void read_masks();
  void decode_rows(Image& out) const;
  void decode_runs(Image& out) const;
  void write_row(const uint8_t* in, uint8_t* out) const;
  void write_color(uint32_t index, uint8_t* out) const {
    if (index >= used_colors_) fail("a pixel has color ", index, " of ", used_colors_);
    std::copy(palette_[index].begin(), palette_[index].end(), out);
  }
  /// Returns the row of the image that is at position `stored` in the file.
  uint8_t* row_of(Image& out, int64_t stored) const { return out.mutable_packed_row(top_down_ ? stored : height_ - 1 - stored); }

  const std::vector<uint8_t>& file_;
  std::string where_;
  int64_t height_ = 0, width_ = 0;
  bool top_down_ = false;
  uint32_t header_ = 0, bits_ = 0, compression_ = kBmpRaw, colors_ = 0;
  uint64_t pixels_ = 0;  // offset of the pixels
  uint32_t used_colors_ = 0;
  std::array<std::array<uint8_t, 4>, 256> palette_{};
  std::array<Channel, 3> channels_{};
  bool has_alpha_ = false;
};

void BmpReader::read_header() {
  header_ = number(kBmpFileHeader, 4);
  if (std::find(std::begin(kBmpHeaders), std::end(kBmpHeaders), header_) == std::end(kBmpHeaders))
    fail("a header of ", header_, " bytes; allowed: 12, 40, 52, 56, 64, 108 and 124");
  if (header_ == kCoreHeader) {
    width_ = number(18, 2);
    height_ = number(20, 2);
    bits_ = number(24, 2);
  } else {
    width_ = static_cast<int32_t>(number(18, 4));
    height_ = static_cast<int32_t>(number(22, 4));
    bits_ = number(28, 2);
    compression_ = number(30, 4);
    colors_ = number(46, 4);
  }
  top_down_ = height_ < 0;
  height_ = top_down_ ? -height_ : height_;
  if (width_ <= 0 || height_ <= 0 || height_ > Image::kMaxPixels / width_)
    fail("its header claims ", width_, " x ", height_, " pixels; allowed: at least one, and at most ", Image::kMaxPixels);
  constexpr uint32_t kDepths[] = {1, 4, 8, 16, 24, 32};
  if (std::find(std::begin(kDepths), std::end(kDepths), bits_) == std::end(kDepths))
    fail(bits_, " bits per pixel; allowed: 1, 4, 8, 16, 24 and 32");
  const bool known = compression_ == kBmpRaw || (compression_ == kBmpRle8 && bits_ == 8) || (compression_ == kBmpRle4 && bits_ == 4) ||
                     (compression_ == kBmpBitfields && bits_ > 8 && header_ != kOs2Header);
  if (!known) fail("compression ", compression_, " with ", bits_, " bits per pixel; allowed: none, RLE8, RLE4 and bit masks");
  pixels_ = number(10, 4);
}

void BmpReader::read_palette() {
  const uint64_t entry = header_ == kCoreHeader ? 3 : 4, begin = kBmpFileHeader + header_;
  if (colors_ == 0) colors_ = 1u << bits_;
  if (colors_ > kMostColors) fail("a palette of ", colors_, " colors; allowed: at most ", kMostColors);
  used_colors_ = std::min(colors_, 1u << bits_);
  need(begin, entry * used_colors_, "the palette");
  for (uint32_t i = 0; i < used_colors_; ++i) {
    const uint8_t* bgr = file_.data() + begin + entry * i;
    palette_[i] = {bgr[2], bgr[1], bgr[0], 255};
  }
  if (pixels_ == 0 || pixels_ == begin) pixels_ = begin + entry * colors_;  // some writers do not count the palette
}

void BmpReader::read_masks() {
  std::array<uint32_t, 3> masks = {0xff0000, 0xff00, 0xff};
  if (bits_ == 16) masks = {0x7c00, 0x3e0, 0x1f};
  if (compression_ == kBmpBitfields) {
    std::array<uint32_t, 3> given{};
    for (size_t c = 0; c < 3; ++c) given[c] = number(kBmpMasks + 4 * c, 4);
    if (bits_ != 32 || given != std::array<uint32_t, 3>{}) masks = given;
    has_alpha_ = header_ >= 56 && number(kBmpMasks + 12, 4) != 0;
  }
  for (size_t c = 0; c < 3; ++c) {
    const uint64_t mask = masks[c];
    auto& channel = channels_[c];
    channel.shift = std::countr_zero(mask | (uint64_t{1} << 32));
    channel.most = mask >> channel.shift;
    if (channel.most == 0 || (channel.most & (channel.most + 1)) != 0 || (mask >> bits_) != 0)
      fail("the bit masks ", masks[0], ", ", masks[1], ", ", masks[2], " of ", bits_, " bits per pixel; allowed: consecutive bits");
  }
  if (pixels_ == 0) pixels_ = kBmpFileHeader + header_ + (header_ == kInfoHeader && compression_ == kBmpBitfields ? 12 : 0);
}

ImageHeader BmpReader::header() const {
  ImageHeader out{.format = ImageHeader::Format::Bmp, .height = height_, .width = width_, .channels = has_alpha_ ? 4 : 3};
  out.palette = bits_ <= 8;
  out.bits = bits_;
  if (out.palette) return out;
  out.bits = 0;
  for (const auto& channel : channels_) out.bits = std::max(out.bits, static_cast<int64_t>(std::bit_width(channel.most)));
  return out;
}

void BmpReader::write_row(const uint8_t* in, uint8_t* out) const {
  const uint32_t bytes = bits_ / 8, mask = bits_ <= 8 ? (1u << bits_) - 1 : 0;
  for (int64_t x = 0; x < width_; ++x, out += 4) {
    if (bits_ <= 8) {
      const auto bit = static_cast<uint64_t>(x) * bits_;  // the first pixel is in the highest bits
      write_color(uint32_t{in[bit / 8]} >> (8 - bits_ - bit % 8) & mask, out);
      continue;
    }
    uint32_t pixel = 0;
    for (uint32_t b = 0; b < bytes; ++b) pixel |= uint32_t{*in++} << (8 * b);
    for (size_t c = 0; c < 3; ++c) {
      const auto& channel = channels_[c];
      out[c] = static_cast<uint8_t>((pixel >> channel.shift & channel.most) * 255 / channel.most);
    }
    out[3] = 255;
  }
}

void BmpReader::decode_rows(Image& out) const {
  const uint64_t stride = (static_cast<uint64_t>(width_) * bits_ + 31) / 32 * 4;
  for (int64_t y = 0; y < height_; ++y) write_row(file_.data() + pixels_ + static_cast<uint64_t>(y) * stride, row_of(out, y));
}

/// Decodes pairs of bytes. (n, color) repeats one color (in RLE4 two, alternately) n times; (0, 0) ends a row, and (0, 1) the image; (0, 2)
/// moves by the next two bytes; (0, n) precedes n colors, padded to an even number of bytes. Pixels beyond the end of a row are ignored.
void BmpReader::decode_runs(Image& out) const {
  const bool nibbles = compression_ == kBmpRle4;
  uint64_t at = pixels_;
  int64_t x = 0, y = 0;
  const auto next = [&]() -> uint32_t {
    if (at >= file_.size()) fail("its pixels end in row ", y + 1, " of ", height_);
    return file_[at++];
  };
  const auto put = [&](uint32_t byte, uint32_t number) {
    if (x >= width_) return;
    write_color(nibbles ? (number % 2 == 0 ? byte >> 4 : byte & 15) : byte, row_of(out, y) + 4 * x);
    ++x;
  };
  while (y < height_ - 1 || (y == height_ - 1 && x < width_)) {
    const uint32_t count = next(), value = next();
    if (count > 0) {
      for (uint32_t i = 0; i < count && x < width_; ++i) put(value, i);
    } else if (value == 0) {
      x = 0;
      ++y;
    } else if (value == 1) {
      fail("its pixels end in row ", y + 1, " of ", height_);
    } else if (value == 2) {
      x += next();
      y += next();
      if (x > width_) fail("its pixels move out of row ", y + 1);
    } else {
      for (uint32_t i = 0, byte = 0; i < value; ++i) {
        if (!nibbles || i % 2 == 0) byte = next();
        put(byte, i);
      }
      at += (nibbles ? (value + 1) / 2 : value) % 2;
    }
  }
}

Image BmpReader::decode() const {
  const bool runs = compression_ == kBmpRle8 || compression_ == kBmpRle4;
  const uint64_t width = static_cast<uint64_t>(width_), rows = static_cast<uint64_t>(height_);
  // Checks the size before memory is allocated. The padding of the last row may be missing. Four bytes of runs move by at most 255 rows.
  const uint64_t least = runs ? std::max<uint64_t>(2, (rows - 1) / 255 * 4)  //
                              : (rows - 1) * ((width * bits_ + 31) / 32 * 4) + (width * bits_ + 7) / 8;
  need(pixels_, least, "the pixels");
  Image out = Image::allocate(height_, width_, 3, PixelOrder::Packed);
  if (!runs) {
    decode_rows(out);
    return out;
  }
  const uint8_t* first = out.mutable_packed_row(0);
  for (int64_t x = 0; x < width_; ++x) write_color(0, out.mutable_packed_row(0) + 4 * x);  // for the pixels that the runs skip
  for (int64_t y = 1; y < height_; ++y) std::copy_n(first, 4 * width_, out.mutable_packed_row(y));
  decode_runs(out);
  return out;
}

}  // namespace

bool is_bmp(const std::vector<uint8_t>& file) { return file.size() > 2 && file[0] == 'B' && file[1] == 'M'; }

ImageHeader bmp_header(const std::vector<uint8_t>& file, const std::string& where) { return BmpReader(file, where).header(); }

Image decode_bmp(const std::vector<uint8_t>& file, const std::string& where) { return BmpReader(file, where).decode(); }

}  // namespace npu_train::detail
