#include "npu_train/data/image_codec.hpp"

#include <spng.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "data/bmp.hpp"
#include "data/jpeg.hpp"
#include "data/webp.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr size_t kMaxPngChunk = size_t{16} << 20, kMaxPngChunkCache = size_t{64} << 20;

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using PngContext = std::unique_ptr<spng_ctx, FreeContext>;

void check_png(int code, const std::string& where) {
  check(code == 0, ErrorKind::Data, "PNG", where, ": ", spng_strerror(code), "; hint: the file is damaged; replace or remove it");
}

bool is_png(const std::vector<uint8_t>& file) {
  static constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return file.size() > 8 && std::memcmp(file.data(), kSignature, 8) == 0;
}

PngContext open_png(const std::vector<uint8_t>& file, const std::string& where, spng_ihdr& header) {
  PngContext context(spng_ctx_new(0));
  check(context != nullptr, ErrorKind::OutOfMemory, "PNG", where, ": no memory for a decoder");
  check_png(spng_set_image_limits(context.get(), static_cast<uint32_t>(Image::kMaxPixels), static_cast<uint32_t>(Image::kMaxPixels)),
            where);
  check_png(spng_set_chunk_limits(context.get(), kMaxPngChunk, kMaxPngChunkCache), where);
  check_png(spng_set_png_buffer(context.get(), file.data(), file.size()), where);
  check_png(spng_get_ihdr(context.get(), &header), where);
  check(header.width > 0 && int64_t{header.height} <= Image::kMaxPixels / header.width, ErrorKind::Data, "PNG", where,
        ": its header claims ", header.width, " x ", header.height, " pixels; allowed: at most ", Image::kMaxPixels);
  return context;
}

Image decode_png(const std::vector<uint8_t>& file, const std::string& where) {
  spng_ihdr header{};
  const PngContext context = open_png(file, where, header);
  Image out = Image::allocate(header.height, header.width, 3, PixelOrder::Packed);
  // The decoder detects truncation. Alpha is in the fourth byte, which is not used.
  check_png(
      spng_decode_image(context.get(), out.mutable_packed_row(0), static_cast<size_t>(header.height) * header.width * 4, SPNG_FMT_RGBA8, 0),
      where);
  return out;
}

/// Returns the channels of an image or of its palette. In the type, 2 stands for colours and 4 for alpha (PNG specification, IHDR).
int64_t channels_of(const spng_ihdr& header) { return ((header.color_type & 2) != 0 ? 3 : 1) + ((header.color_type & 4) != 0 ? 1 : 0); }

struct FreeBytes {
  void operator()(void* bytes) const { std::free(bytes); }
};

[[noreturn]] void unknown_format(const std::vector<uint8_t>& file, const std::string& where) {
  throw Error(ErrorKind::Data, "image", where + ": " + (file.empty() ? "the file is empty" : "none of JPEG, PNG, WebP and BMP"),
              "replace or remove the file");
}

}  // namespace

ImageHeader read_header(const std::vector<uint8_t>& file, const std::string& where) {
  if (detail::is_jpeg(file)) return detail::jpeg_header(file, where);
  if (detail::is_webp(file)) return detail::webp_header(file, where);
  if (detail::is_bmp(file)) return detail::bmp_header(file, where);
  if (!is_png(file)) unknown_format(file, where);
  spng_ihdr header{};
  const PngContext context = open_png(file, where, header);
  return {ImageHeader::Format::Png, header.height,    header.width,
          channels_of(header),      header.bit_depth, header.color_type == SPNG_COLOR_TYPE_INDEXED};
}

Image decode_image(const std::vector<uint8_t>& file, const std::string& where) {
  if (is_png(file)) return decode_png(file, where);
  if (detail::is_webp(file)) return detail::decode_webp(file, where);
  if (detail::is_bmp(file)) return detail::decode_bmp(file, where);
  if (!detail::is_jpeg(file)) unknown_format(file, where);
  const auto header = detail::jpeg_header(file, where);
  return detail::decode_jpeg(file, where, {0, 0, header.height, header.width}, 1).image;
}

DecodedBox decode_box(const std::vector<uint8_t>& file, const std::string& where, const PixelBox& box, int64_t height, int64_t width) {
  if (detail::is_jpeg(file)) {
    int denominator = 1;
    while (denominator < 8 && box.height >= 2 * denominator * height && box.width >= 2 * denominator * width) denominator *= 2;
    return detail::decode_jpeg(file, where, box, denominator);
  }
  DecodedBox out;
  out.image = decode_image(file, where).crop(box.top, box.left, box.height, box.width);
  out.y1 = static_cast<double>(box.height);
  out.x1 = static_cast<double>(box.width);
  return out;
}

std::vector<uint8_t> encode_png(const Image& image) {
  const int64_t channels = image.channels(), height = image.height(), width = image.width();
  check(channels == 1 || channels == 3 || channels == 4, ErrorKind::Usage, "encode_png", "an image with ", channels,
        " channels; allowed: 1, 3, 4");
  const Image planes = image.dense(PixelOrder::Planar);
  std::vector<uint8_t> pixels(static_cast<size_t>(channels * height * width));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < planes.pixels(); ++i) pixels[static_cast<size_t>(i * channels + c)] = planes.plane(c)[i];
  // From here on, only a lack of memory can be the cause of an error.
  const auto check_code = [](int code) { check(code == 0, ErrorKind::OutOfMemory, "encode_png", spng_strerror(code)); };
  const PngContext context(spng_ctx_new(SPNG_CTX_ENCODER));
  check(context != nullptr, ErrorKind::OutOfMemory, "encode_png", "no memory for an encoder");
  spng_ihdr header{};
  header.height = static_cast<uint32_t>(height);
  header.width = static_cast<uint32_t>(width);
  header.bit_depth = 8;
  header.color_type = static_cast<uint8_t>(channels == 1   ? SPNG_COLOR_TYPE_GRAYSCALE
                                           : channels == 3 ? SPNG_COLOR_TYPE_TRUECOLOR
                                                           : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA);
  check_code(spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1));
  check_code(spng_set_ihdr(context.get(), &header));
  check_code(spng_encode_image(context.get(), pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  size_t size = 0;
  int error = 0;
  const std::unique_ptr<void, FreeBytes> file(spng_get_png_buffer(context.get(), &size, &error));
  check_code(error);
  const auto* bytes = static_cast<const uint8_t*>(file.get());
  return {bytes, bytes + size};
}

}  // namespace npu_train
