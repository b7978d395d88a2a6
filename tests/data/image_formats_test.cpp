// WebP and BMP files. tests/apps/eval_transforms_test.py compares the pixels of these formats with Pillow's.
#include "testing.hpp"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "bounded.hpp"
#include "images.hpp"
#include "npu_train/data/image_codec.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

using FileBytes = std::vector<uint8_t>;

FileBytes little_endian(uint64_t value, int bytes) {
  FileBytes out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
  return out;
}

FileBytes joined(const std::vector<FileBytes>& parts) {
  FileBytes out;
  for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

FileBytes chunk(const std::string& name, const FileBytes& content) {
  return joined({FileBytes(name.begin(), name.end()), little_endian(content.size(), 4), content, FileBytes(content.size() % 2, 0)});
}

struct WebpFrame {
  uint64_t left, top;  // even numbers
  Image image;
};

/// Returns an animation of lossless frames.
FileBytes animation(int64_t height, int64_t width, const std::vector<WebpFrame>& frames) {
  const auto size = [](int64_t w, int64_t h) {
    return joined({little_endian(static_cast<uint64_t>(w - 1), 3), little_endian(static_cast<uint64_t>(h - 1), 3)});
  };
  FileBytes chunks = joined({chunk("VP8X", joined({{0x12, 0, 0, 0}, size(width, height)})), chunk("ANIM", FileBytes(6, 0xff))});
  for (const auto& frame : frames) {
    const auto file = to_webp(frame.image);
    const auto place = joined({little_endian(frame.left / 2, 3), little_endian(frame.top / 2, 3)});
    const auto content =
        joined({place, size(frame.image.width(), frame.image.height()), {100, 0, 0, 0}, FileBytes(file.begin() + 12, file.end())});
    chunks = joined({chunks, chunk("ANMF", content)});
  }
  return chunk("RIFF", joined({{'W', 'E', 'B', 'P'}, chunks}));
}

struct BmpFile {
  int32_t width = 3, height = 2;
  uint32_t bits = 24, compression = 0, colors = 0;
  FileBytes palette{};  // also holds the bit masks
  FileBytes pixels{};
};

FileBytes to_bmp(const BmpFile& f) {
  const auto offset = 14 + 40 + f.palette.size();
  return joined({{'B', 'M'},
                 little_endian(offset + f.pixels.size(), 4),
                 FileBytes(4, 0),
                 little_endian(offset, 4),
                 little_endian(40, 4),
                 little_endian(static_cast<uint32_t>(f.width), 4),
                 little_endian(static_cast<uint32_t>(f.height), 4),
                 {1, 0},
                 little_endian(f.bits, 2),
                 little_endian(f.compression, 4),
                 FileBytes(12, 0),
                 little_endian(f.colors, 4),
                 FileBytes(4, 0),
                 f.palette,
                 f.pixels});
}

const FileBytes kBlackToRed = {0, 0, 0, 0, 0, 0, 85, 0, 0, 0, 170, 0, 0, 0, 255, 0};  // B, G, R, 0

/// Returns the red values of a file with this palette, row by row.
std::vector<int> reds(const FileBytes& file) {
  const auto all = values(decode_image(file, "a.bmp"));
  return {all.begin(), all.begin() + static_cast<int64_t>(all.size() / 3)};
}

std::string refusal_of(const FileBytes& file) {
  const Error error = error_of([&] { decode_image(file, "folder/bad.file"); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(has(error.what(), "folder/bad.file"));
  return error.what();
}

/// Checks that every truncated file is refused by its header or by its pixels, and that changed bytes give an image or an Error(Data).
void check_hostile(const FileBytes& file) {
  for (size_t length = 0; length < file.size(); ++length) {
    CAPTURE(length);
    refusal_of({file.begin(), file.begin() + static_cast<int64_t>(length)});
  }
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    auto changed = file;
    // Half of the changes are in the header.
    for (int k = 0; k <= i % 3; ++k)
      changed[random() % (i % 2 == 0 ? std::min<size_t>(file.size(), 64) : file.size())] = static_cast<uint8_t>(random());
    try {
      const auto image = decode_image(changed, "changed");
      CHECK(image.pixels() <= Image::kMaxPixels);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::Data);
    }
  }
}

}  // namespace

TEST_CASE("WebP comes back as it went in: lossless exactly, with alpha without it, lossy nearly") {
  const Image image = rough(50, 71), rgba = rough(50, 71, 4);
  const auto file = to_webp(image);
  CHECK(values(decode_image(file, "a.webp")) == values(image));
  const auto header = read_header(file, "a.webp");
  CHECK(header.format == ImageHeader::Format::Webp);
  CHECK(header.height == 50);
  CHECK(header.width == 71);
  const DecodedBox box = decode_box(file, "a.webp", {10, 20, 30, 40}, 15, 20);
  CHECK(values(box.image) == values(image.crop(10, 20, 30, 40)));
  CHECK(box.y1 == 30);
  // The encoder may change the colors of pixels that are completely transparent.
  const auto decoded = decode_image(to_webp(rgba), "alpha.webp");
  CHECK(decoded.channels() == 3);
  for (int64_t y = 0; y < 50; ++y)
    for (int64_t x = 0; x < 71; ++x)
      if (rgba.at(3, y, x) != 0) CHECK(decoded.at(0, y, x) == rgba.at(0, y, x));
  for (const int64_t channels : {3, 4}) {
    const auto lossy = decode_image(to_webp(soft(40, 30, channels), false), "lossy.webp");
    CHECK(largest_difference(values(lossy), values(soft(40, 30))) <= 16);
  }
}

TEST_CASE("of an animation the first frame is read, on black") {
  const Image first = rough(4, 6), second = ramp(10, 12);
  const auto file = animation(10, 12, {{2, 4, first}, {0, 0, second}});
  CHECK(read_header(file, "a.webp").width == 12);
  const Image image = decode_image(file, "a.webp");
  REQUIRE(image.height() == 10);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < 10; ++y)
      for (int64_t x = 0; x < 12; ++x) {
        const bool inside = y >= 4 && y < 8 && x >= 2 && x < 8;
        CHECK(image.at(c, y, x) == (inside ? first.at(c, y - 4, x - 2) : 0));
      }
  refusal_of(animation(10, 12, {}));
  refusal_of(animation(10, 12, {{8, 0, first}}));  // reaches out of the image
  check_hostile(animation(4, 6, {{0, 0, first}}));
}

TEST_CASE("a WebP that ends early or is damaged is an error; its size is checked first") {
  check_hostile(to_webp(rough(12, 10)));
  check_hostile(to_webp(ramp(16, 16), false));
  auto huge = animation(4, 6, {{0, 0, rough(4, 6)}});
  for (const size_t at : {24, 27}) huge[at] = 0xff, huge[at + 1] = 0x7f;
  CHECK(has(refusal_of(huge), "32768 x 32768"));
}

TEST_CASE("BMP: rows from the bottom or the top, palettes of 1, 4 and 8 bits, and bit masks") {
  const FileBytes rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0, 0, 0};  // B, G, R, and padding
  const auto from_bottom = decode_image(to_bmp({.pixels = rows}), "a.bmp");
  CHECK(values(from_bottom) == std::vector<int>{13, 16, 19, 3, 6, 9, 12, 15, 18, 2, 5, 8, 11, 14, 17, 1, 4, 7});
  CHECK(values(decode_image(to_bmp({.height = -2, .pixels = rows}), "a.bmp")) ==
        std::vector<int>{3, 6, 9, 13, 16, 19, 2, 5, 8, 12, 15, 18, 1, 4, 7, 11, 14, 17});
  CHECK(read_header(to_bmp({.height = -2, .pixels = rows}), "a.bmp").height == 2);
  auto without_padding = rows;
  without_padding.resize(rows.size() - 3);
  CHECK(values(decode_image(to_bmp({.pixels = without_padding}), "a.bmp")) == values(from_bottom));

  const FileBytes two(kBlackToRed.begin() + 8, kBlackToRed.end());
  CHECK(reds(to_bmp({.bits = 1, .colors = 2, .palette = two, .pixels = {0xa0, 0, 0, 0, 0x60, 0, 0, 0}})) ==
        std::vector<int>{170, 255, 255, 255, 170, 255});
  CHECK(reds(to_bmp({.bits = 4, .colors = 4, .palette = kBlackToRed, .pixels = {0x01, 0x20, 0, 0, 0x32, 0x10, 0, 0}})) ==
        std::vector<int>{255, 170, 85, 0, 85, 170});
  CHECK(reds(to_bmp({.bits = 8, .colors = 4, .palette = kBlackToRed, .pixels = {0, 1, 2, 0, 3, 2, 1, 0}})) ==
        std::vector<int>{255, 170, 85, 0, 85, 170});
  CHECK(has(refusal_of(to_bmp({.bits = 8, .colors = 4, .palette = kBlackToRed, .pixels = {0, 1, 2, 0, 3, 2, 4, 0}})), "color 4 of 4"));

  const auto masks = [](uint32_t r, uint32_t g, uint32_t b) {
    return joined({little_endian(r, 4), little_endian(g, 4), little_endian(b, 4)});
  };
  const auto pixel = [](uint32_t bits, uint32_t compression, const FileBytes& mask, uint32_t value) {
    return values(decode_image(
        to_bmp({.width = 1, .height = 1, .bits = bits, .compression = compression, .palette = mask, .pixels = little_endian(value, 4)}),
        "a"));
  };
  CHECK(pixel(16, 0, {}, 0x7fff & ~0x3e0u) == std::vector<int>{255, 0, 255});
  CHECK(pixel(16, 0, {}, 16u << 10 | 1u << 5) == std::vector<int>{131, 8, 0});
  CHECK(pixel(16, 3, masks(0xf800, 0x7e0, 0x1f), 32u << 5 | 31u) == std::vector<int>{0, 129, 255});
  CHECK(pixel(32, 0, {}, 0xff010203) == std::vector<int>{1, 2, 3});
  CHECK(pixel(32, 3, masks(0xff, 0xff00, 0xff0000), 0xff010203) == std::vector<int>{3, 2, 1});
  CHECK(pixel(32, 3, masks(0, 0, 0), 0xff010203) == std::vector<int>{1, 2, 3});
  CHECK(pixel(32, 3, masks(0x3ff00000, 0xffc00, 0x3ff), 1023u << 20 | 512u) == std::vector<int>{255, 0, 127});
  for (const auto& mask : {masks(0x0f, 0xf00, 0), masks(0x5, 0xf00, 0xf0), masks(0x10000, 0xf0, 0xf)})
    CHECK(has(refusal_of(to_bmp({.width = 1, .height = 1, .bits = 16, .compression = 3, .palette = mask, .pixels = FileBytes(4, 0)})),
              "bit masks"));
}

TEST_CASE("BMP: runs of RLE8 and RLE4, with jumps and rows that end early") {
  const auto decoded = [](uint32_t bits, const FileBytes& runs) {
    return reds(to_bmp(
        {.width = 5, .height = 3, .bits = bits, .compression = bits == 8 ? 1u : 2u, .colors = 4, .palette = kBlackToRed, .pixels = runs}));
  };
  // Rows from the bottom. Row 1: three pixels of color 3 and two of color 1. Row 2: an absolute run of three pixels (padded), and the end
  // of the row. Row 3: a jump by 2.
  const FileBytes runs = {3, 3, 2, 1, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 2, 2, 0, 9, 1, 0, 1};
  CHECK(decoded(8, runs) == std::vector<int>{0, 0, 85, 85, 85, 85, 170, 255, 0, 0, 255, 255, 255, 85, 85});
  const FileBytes nibbles = {5, 0x31, 0, 0, 0, 3, 0x12, 0x30, 0, 0, 0, 2, 1, 0, 4, 0x22, 0, 1};
  CHECK(decoded(4, nibbles) == std::vector<int>{0, 170, 170, 170, 170, 85, 170, 255, 0, 0, 255, 85, 255, 85, 255});
  const auto file_of = [](int32_t height, const FileBytes& content) {
    return to_bmp({.width = 5, .height = height, .bits = 8, .compression = 1, .colors = 4, .palette = kBlackToRed, .pixels = content});
  };
  const auto file = [&](const FileBytes& content) { return file_of(3, content); };
  CHECK(has(refusal_of(file({5, 1, 0, 0, 5, 1, 0, 1})), "end in row 2 of 3"));
  CHECK(has(refusal_of(file({5, 1, 0, 0, 5, 1, 0, 0, 4, 1})), "end in row 3 of 3"));
  CHECK(has(refusal_of(file({0, 2, 6, 0})), "move out of row 1"));
  CHECK(has(refusal_of(file({5, 4})), "color 4 of 4"));
  CHECK(reds(file({0, 2, 0, 255, 0, 0})) == std::vector<int>(15, 0));         // a jump beyond the last row ends the image
  CHECK(reds(file_of(256, {0, 2, 5, 255})) == std::vector<int>(5 * 256, 0));  // as few bytes as these rows can have
  CHECK(reds(file_of(511, {0, 2, 5, 255, 0, 2, 0, 255})) == std::vector<int>(5 * 511, 0));
  CHECK(has(refusal_of(file_of(5'000'000, {0, 2, 5, 255})), "the pixels would be 78428 bytes"));
  check_hostile(file(FileBytes(runs.begin(), runs.end() - 2)));
}

TEST_CASE("a BMP with false claims is refused before its memory is taken") {
  const FileBytes rows(24, 1);
  CHECK(has(refusal_of(to_bmp({.width = 100'000, .height = 100'000, .pixels = rows})), "100000 x 100000"));
  CHECK(has(refusal_of(to_bmp({.width = -3, .pixels = rows})), "claims -3 x 2"));
  CHECK(has(refusal_of(to_bmp({.height = INT32_MIN, .pixels = rows})), "2147483648"));
  CHECK(has(refusal_of(to_bmp({.bits = 2, .pixels = rows})), "2 bits per pixel"));
  CHECK(has(refusal_of(to_bmp({.compression = 4, .pixels = rows})), "compression 4"));
  CHECK(has(refusal_of(to_bmp({.bits = 4, .compression = 1, .pixels = rows})), "compression 1 with 4"));
  CHECK(has(refusal_of(to_bmp({.bits = 8, .colors = 70'000, .pixels = rows})), "palette of 70000"));
  CHECK(has(refusal_of(to_bmp({.bits = 8, .colors = 200, .pixels = rows})), "the palette would be 800 bytes"));
  CHECK(has(refusal_of(to_bmp({.width = 9000, .height = 9000, .pixels = rows})), "the pixels would be"));
  auto other_header = to_bmp({.pixels = rows});
  other_header[14] = 16;
  CHECK(has(refusal_of(other_header), "header of 16 bytes"));
  check_hostile(to_bmp({.pixels = FileBytes(21, 1)}));
  check_hostile(to_bmp({.bits = 4, .colors = 4, .palette = kBlackToRed, .pixels = {0x01, 0x20, 0, 0, 0x32, 0x10}}));
}

TEST_CASE("a header of WebP or BMP says how the pixels are stored") {
  const auto stored = [](const FileBytes& file) {
    const auto header = read_header(file, "a");
    return std::vector<int64_t>{header.channels, header.bits, header.palette};
  };
  for (const bool lossless : {true, false}) {
    CHECK(stored(to_webp(soft(4, 5), lossless)) == std::vector<int64_t>{3, 8, 0});
    CHECK(stored(to_webp(soft(4, 5, 4), lossless)) == std::vector<int64_t>{4, 8, 0});
  }
  CHECK(stored(animation(4, 6, {{0, 0, rough(4, 6)}})) == std::vector<int64_t>{4, 8, 0});
  for (const uint32_t bits : {1, 4, 8})
    CHECK(stored(to_bmp({.bits = bits, .colors = 2, .palette = FileBytes(8, 0)})) == std::vector<int64_t>{3, bits, 1});
  for (const uint32_t bits : {24, 32}) CHECK(stored(to_bmp({.bits = bits})) == std::vector<int64_t>{3, 8, 0});
  CHECK(stored(to_bmp({.bits = 16})) == std::vector<int64_t>{3, 5, 0});
  const auto masks = joined({little_endian(0xf800, 4), little_endian(0x7e0, 4), little_endian(0x1f, 4)});
  CHECK(stored(to_bmp({.bits = 16, .compression = 3, .palette = masks})) == std::vector<int64_t>{3, 6, 0});
  for (const uint32_t alpha : {0u, 0xff000000u}) {
    auto file = to_bmp({.bits = 32,
                        .compression = 3,
                        .palette = joined({little_endian(0xff, 4), little_endian(0xff00, 4), little_endian(0xff0000, 4),  //
                                           little_endian(alpha, 4)})});
    file[14] = 56;  // a header that ends with the four masks
    CHECK(stored(file) == std::vector<int64_t>{alpha != 0 ? 4 : 3, 8, 0});
  }
}

TEST_CASE("the memory that a short BMP claims is not taken" * only_if(kCountsMemory, "sanitizers reserve terabytes of addresses")) {
  CHECK(runs_within(100, [] {
    const Error e = error_of([] { decode_image(to_bmp({.width = 9000, .height = 9000, .pixels = FileBytes(24, 1)}), "a.bmp"); });
    if (e.kind() != ErrorKind::Data) throw std::runtime_error("out of memory");
  }));
}
