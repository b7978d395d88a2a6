/// Images given by a formula, files made of them, and comparisons.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <jpeglib.h>
#include <spng.h>
#include <webp/encode.h>

#include "npu_train/data/image.hpp"

namespace npu_train::testing {

/// Returns an image with the values (37 x + 61 y + 97 c + 19 (x y mod 7)) mod 256: rough and without symmetry.
inline Image rough(int64_t h, int64_t w, int64_t channels = 3) {
  Image out = Image::allocate(h, w, channels);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < h; ++y) {
      for (int64_t x = 0; x < w; ++x)
        out.mutable_plane(c)[y * w + x] = static_cast<uint8_t>((x * 37 + y * 61 + c * 97 + (x * y) % 7 * 19) % 256);
    }
  }
  return out;
}

/// Returns an image with the values (5 x + 7 y + 31 c) mod 200 + 20.
inline Image ramp(int64_t h, int64_t w) {
  Image out = Image::allocate(h, w, 3);
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < h; ++y) {
      for (int64_t x = 0; x < w; ++x) out.mutable_plane(c)[y * w + x] = static_cast<uint8_t>((x * 5 + y * 7 + c * 31) % 200 + 20);
    }
  }
  return out;
}

/// Value 30 + 190 (x + 2 y (c + 1)) / (w + 6 h): smooth enough that JPEG keeps it within a few steps.
inline Image soft(int64_t h, int64_t w, int64_t channels = 3) {
  Image out = Image::allocate(h, w, channels);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < h; ++y) {
      for (int64_t x = 0; x < w; ++x)
        out.mutable_plane(c)[y * w + x] = static_cast<uint8_t>(30 + (x + 2 * y * (c + 1)) * 190 / (w + 6 * h));
    }
  }
  return out;
}

/// Returns all values, plane by plane.
inline std::vector<int> values(const Image& image) {
  std::vector<int> out;
  for (int64_t c = 0; c < image.channels(); ++c) {
    for (int64_t y = 0; y < image.height(); ++y) {
      for (int64_t x = 0; x < image.width(); ++x) out.push_back(image.at(c, y, x));
    }
  }
  return out;
}

inline int largest_difference(const std::vector<int>& a, const std::vector<int>& b) {
  if (a.size() != b.size()) return 1000;
  int worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

inline double mean_difference(const std::vector<int>& a, const std::vector<int>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return a.size() == b.size() ? sum / static_cast<double>(a.size()) : 1000;
}

struct JpegStyle {
  int quality = 90;
  int sampling = 2;  // chroma subsampling: 2 = 4:2:0, 1 = 4:4:4
  bool progressive = false;
  bool cmyk = false;
};

/// Returns a JPEG file; one channel gives a grayscale one.
inline std::vector<uint8_t> to_jpeg(const Image& image, const JpegStyle& style = {}) {
  jpeg_compress_struct cinfo{};
  jpeg_error_mgr errors;
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&cinfo, &bytes, &size);
  cinfo.image_width = static_cast<JDIMENSION>(image.width());
  cinfo.image_height = static_cast<JDIMENSION>(image.height());
  cinfo.input_components = style.cmyk ? 4 : static_cast<int>(image.channels());
  cinfo.in_color_space = style.cmyk ? JCS_CMYK : (image.channels() == 1 ? JCS_GRAYSCALE : JCS_RGB);
  jpeg_set_defaults(&cinfo);
  jpeg_set_quality(&cinfo, style.quality, TRUE);
  if (image.channels() == 3 && !style.cmyk) cinfo.comp_info[0].h_samp_factor = cinfo.comp_info[0].v_samp_factor = style.sampling;
  if (style.progressive) jpeg_simple_progression(&cinfo);
  jpeg_start_compress(&cinfo, TRUE);
  std::vector<uint8_t> row(image.width() * cinfo.input_components);
  for (int64_t y = 0; y < image.height(); ++y) {
    for (int64_t x = 0; x < image.width(); ++x) {
      for (int c = 0; c < cinfo.input_components; ++c) {
        // Adobe stores CMYK inverted: black is the full value.
        row[x * cinfo.input_components + c] = c == 3 ? 255 : image.at(c, y, x);
      }
    }
    JSAMPROW line = row.data();
    jpeg_write_scanlines(&cinfo, &line, 1);
  }
  jpeg_finish_compress(&cinfo);
  jpeg_destroy_compress(&cinfo);
  std::vector<uint8_t> out(bytes, bytes + size);
  std::free(bytes);
  return out;
}

/// Returns a PNG file of 8 or 16 bits; four channels are RGBA.
inline std::vector<uint8_t> to_png(const Image& image, int bits = 8) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = static_cast<uint32_t>(image.width());
  header.height = static_cast<uint32_t>(image.height());
  header.bit_depth = static_cast<uint8_t>(bits);
  header.color_type = image.channels() == 1 ? SPNG_COLOR_TYPE_GRAYSCALE
                                            : (image.channels() == 3 ? SPNG_COLOR_TYPE_TRUECOLOR : SPNG_COLOR_TYPE_TRUECOLOR_ALPHA);
  spng_set_ihdr(context, &header);
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < image.height(); ++y) {
    for (int64_t x = 0; x < image.width(); ++x) {
      for (int64_t c = 0; c < image.channels(); ++c) pixels.insert(pixels.end(), bits / 8, image.at(c, y, x));
    }
  }
  spng_encode_image(context, pixels.data(), pixels.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  size_t size = 0;
  int error = 0;
  auto* bytes = static_cast<uint8_t*>(spng_get_png_buffer(context, &size, &error));
  std::vector<uint8_t> out(bytes, bytes + size);
  std::free(bytes);
  spng_ctx_free(context);
  return out;
}

/// Returns a WebP file of three channels, or of four (RGBA).
inline std::vector<uint8_t> to_webp(const Image& image, bool lossless = true) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < image.height(); ++y) {
    for (int64_t x = 0; x < image.width(); ++x) {
      for (int64_t c = 0; c < image.channels(); ++c) pixels.push_back(image.at(c, y, x));
    }
  }
  const auto width = static_cast<int>(image.width()), height = static_cast<int>(image.height());
  const auto row = width * static_cast<int>(image.channels());
  uint8_t* bytes = nullptr;
  size_t size = 0;
  if (lossless)
    size = image.channels() == 4 ? WebPEncodeLosslessRGBA(pixels.data(), width, height, row, &bytes)
                                 : WebPEncodeLosslessRGB(pixels.data(), width, height, row, &bytes);
  else
    size = image.channels() == 4 ? WebPEncodeRGBA(pixels.data(), width, height, row, 90, &bytes)
                                 : WebPEncodeRGB(pixels.data(), width, height, row, 90, &bytes);
  std::vector<uint8_t> out(bytes, bytes + size);
  WebPFree(bytes);
  return out;
}

/// The pixels of `image` as a program stores them, and a view of them. Bytes that belong to no pixel are 77.
struct ProgramPixels {
  std::vector<uint8_t> bytes;
  ImageView view;

  ProgramPixels(const Image& image, int64_t channels, ChannelLayout layout, ChannelOrder order, int64_t gap) {
    const int64_t h = image.height(), w = image.width();
    const bool planes = layout == ChannelLayout::Chw;
    const int64_t stride = (planes ? w : w * channels) + gap;
    bytes.assign(static_cast<size_t>((planes ? channels : 1) * h * stride), 77);
    for (int64_t c = 0; c < channels; ++c) {
      const bool reversed = order == ChannelOrder::Bgr && channels > 1 && c < 3;
      for (int64_t y = 0; y < h; ++y) {
        for (int64_t x = 0; x < w; ++x) {
          const int64_t at = planes ? (c * h + y) * stride + x : y * stride + x * channels + c;
          bytes[static_cast<size_t>(at)] = image.at(reversed ? 2 - c : c, y, x);
        }
      }
    }
    view = {.data = bytes.data(),
            .height = h,
            .width = w,
            .channels = channels,
            .row_stride = gap == 0 ? 0 : stride,
            .layout = layout,
            .order = order};
  }
};

inline void write_bytes(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace npu_train::testing
