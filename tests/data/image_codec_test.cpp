#include "testing.hpp"

#include "npu_train/data/image_codec.hpp"

#include <algorithm>
#include <stdexcept>

#include "bounded.hpp"
#include "images.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns a progressive JPEG of 64 x 64 pixels whose header states another size.
std::vector<uint8_t> claiming(int height, int width) {
  const std::vector<uint8_t> marker = {0xff, 0xc2};
  auto out = to_jpeg(soft(64, 64), {90, 1, true, false});
  const auto frame = std::search(out.begin(), out.end(), marker.begin(), marker.end());
  REQUIRE((frame != out.end()));
  auto at = frame + 5;
  for (const int part : {height >> 8, height, width >> 8, width}) *at++ = static_cast<uint8_t>(part);
  return out;
}

std::vector<int> box_of(const Image& whole, const PixelBox& box) { return values(whole.crop(box.top, box.left, box.height, box.width)); }

}  // namespace

TEST_CASE("JPEG and PNG come back as they went in") {
  const Image image = soft(50, 70);
  for (const JpegStyle style : {JpegStyle{95, 1, false, false}, JpegStyle{95, 2, false, false}, JpegStyle{95, 2, true, false}}) {
    const Image back = decode_image(to_jpeg(image, style), "soft.jpg");
    CHECK(back.channels() == 3);
    CHECK(largest_difference(values(back), values(image)) <= 8);
  }
  CHECK(values(decode_image(to_png(image), "soft.png")) == values(image));
  CHECK(values(decode_image(to_png(image, 16), "deep.png")) == values(image));
  const auto header = read_header(to_png(image), "soft.png");
  CHECK(header.format == ImageHeader::Format::Png);
  CHECK(header.height == 50);
  CHECK(header.width == 70);
  CHECK(read_header(to_jpeg(image), "soft.jpg").width == 70);
}

TEST_CASE("gray, transparent and CMYK images become RGB") {
  const Image gray = soft(20, 30, 1);
  for (const auto& file : {to_png(gray), to_png(gray, 16), to_jpeg(gray, {100, 1, false, false})}) {
    const Image rgb = decode_image(file, "gray");
    CHECK(rgb.channels() == 3);
    CHECK(std::abs(rgb.at(0, 7, 9) - gray.at(0, 7, 9)) <= 2);
    CHECK(rgb.at(0, 7, 9) == rgb.at(2, 7, 9));
  }
  const Image rgba = soft(20, 30, 4);
  const Image dropped = decode_image(to_png(rgba), "rgba");
  CHECK(dropped.at(2, 4, 5) == rgba.at(2, 4, 5));
  const Image cmyk = decode_image(to_jpeg(soft(20, 30), {98, 1, false, true}), "cmyk");
  CHECK(largest_difference(values(cmyk), values(soft(20, 30))) <= 8);
}

TEST_CASE("a part of a JPEG has the pixels of the complete image, for every sampling") {
  const Image image = soft(200, 260);
  for (const JpegStyle style : {JpegStyle{90, 1, false, false}, JpegStyle{90, 2, false, false}, JpegStyle{90, 2, true, false}}) {
    const auto file = to_jpeg(image, style);
    const Image whole = decode_image(file, "complete");
    for (const PixelBox box : {PixelBox{0, 0, 200, 260}, PixelBox{37, 51, 90, 101}, PixelBox{150, 201, 50, 59}, PixelBox{0, 0, 17, 16},
                               PixelBox{183, 5, 1, 1}}) {
      const DecodedBox part = decode_box(file, "part", box, box.height, box.width);
      REQUIRE(part.y1 - part.y0 == static_cast<double>(box.height));
      REQUIRE(part.x1 - part.x0 == static_cast<double>(box.width));
      const auto got = values(part.image.crop(static_cast<int64_t>(part.y0), static_cast<int64_t>(part.x0), box.height, box.width));
      // At the cut, chroma is interpolated from one side only.
      CHECK(largest_difference(got, box_of(whole, box)) <= 3);
      CHECK(mean_difference(got, box_of(whole, box)) <= 0.05);
    }
  }
}

TEST_CASE("a large JPEG is decoded smaller, never below the requested size") {
  const auto file = to_jpeg(soft(400, 640));
  const DecodedBox eighth = decode_box(file, "x", {0, 0, 400, 640}, 50, 80);
  CHECK(eighth.image.height() == 50);
  CHECK(eighth.y1 == 50);
  const DecodedBox half = decode_box(file, "x", {0, 0, 400, 640}, 101, 100);
  CHECK(half.image.height() == 200);
  const DecodedBox full = decode_box(file, "x", {0, 0, 400, 640}, 201, 300);
  CHECK(full.image.height() == 400);
  const Image whole = decode_image(file, "x");
  const Image direct = resize(whole.crop(100, 60, 200, 400), 50, 100);
  const DecodedBox part = decode_box(file, "x", {100, 60, 200, 400}, 50, 100);
  CHECK(part.image.height() <= 51);
  CHECK(largest_difference(values(resize(part.image, 50, 100, {.exact = false}, part.y0, part.x0, part.y1, part.x1)), values(direct)) <= 2);
}

TEST_CASE("a JPEG that ends early is an error wherever it was truncated, even if only its top is needed") {
  const auto file = to_jpeg(rough(160, 160));
  for (const double part : {0.02, 0.3, 0.5, 0.9, 0.99}) {
    const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<int64_t>(part * static_cast<double>(file.size())));
    const Error error = error_of([&] { decode_image(cut, "folder/cut.jpg"); });
    CHECK(error.kind() == ErrorKind::Data);
    CHECK(std::string(error.what()).find("folder/cut.jpg") != std::string::npos);
    CHECK(error_of([&] { decode_box(cut, "folder/cut.jpg", {0, 0, 16, 160}, 16, 160); }).kind() == ErrorKind::Data);
  }
  const auto progressive = to_jpeg(rough(160, 160), {90, 2, true, false});
  const std::vector<uint8_t> cut(progressive.begin(), progressive.begin() + static_cast<int64_t>(progressive.size() / 2));
  CHECK(error_of([&] { decode_image(cut, "cut.jpg"); }).kind() == ErrorKind::Data);
}

TEST_CASE("a PNG that ends early, is damaged or makes false claims about its size is an error") {
  const auto file = to_png(rough(60, 60));
  for (const double part : {0.1, 0.5, 0.9}) {
    const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<int64_t>(part * static_cast<double>(file.size())));
    CHECK(error_of([&] { decode_image(cut, "cut.png"); }).kind() == ErrorKind::Data);
  }
  auto damaged = file;
  damaged[damaged.size() / 2] ^= 0x55;
  CHECK(error_of([&] { decode_image(damaged, "damaged.png"); }).kind() == ErrorKind::Data);
}

TEST_CASE("sizes beyond the limit are refused from the header alone") {
  auto file = to_jpeg(rough(16, 16));
  for (size_t i = 0; i + 8 < file.size(); ++i) {
    if (file[i] == 0xff && file[i + 1] == 0xc0) {  // changes the frame header to 65,000 x 65,000
      file[i + 5] = file[i + 7] = 0xfd;
      file[i + 6] = file[i + 8] = 0xe8;
      break;
    }
  }
  const Error error = error_of([&] { decode_image(file, "huge.jpg"); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(std::string(error.what()).find("65000 x 65000") != std::string::npos);
}

TEST_CASE("a file that is not an image is an error, and arbitrary bytes after a JPEG's start do no harm") {
  CHECK(error_of([] { decode_image({}, "empty.jpg"); }).kind() == ErrorKind::Data);
  CHECK(error_of([] { read_header({'h', 'e', 'l', 'l', 'o', '!', '!', '!', '!', '!'}, "text.png"); }).kind() == ErrorKind::Data);
  const auto file = to_jpeg(rough(48, 48));
  uint32_t state = 1;
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    auto broken = file;
    for (int k = 0; k < 4; ++k) {
      state = state * 1664525u + 1013904223u;
      broken[3 + state % (broken.size() - 3)] = static_cast<uint8_t>(state >> 24);
    }
    try {
      decode_image(broken, "broken.jpg");
      decode_box(broken, "broken.jpg", {5, 5, 20, 20}, 5, 5);
    } catch (const Error& error) {
      CHECK((error.kind() == ErrorKind::Data || error.kind() == ErrorKind::Internal));
      ++refused;
    }
  }
  CHECK(refused > 10);
}

TEST_CASE("a progressive JPEG of very many scans is refused") {
  auto grey = Image::allocate(64, 64, 1);  // a scan without details may occur any number of times
  std::fill_n(grey.mutable_plane(0), 64 * 64, uint8_t{128});
  const auto file = to_jpeg(grey, {90, 1, true, false});
  const std::vector<uint8_t> table = {0xff, 0xc4};  // marks the beginning of the last scan
  const auto scan = std::find_end(file.begin(), file.end(), table.begin(), table.end());
  REQUIRE((scan != file.end()));
  const auto with_scans = [&](int more) {
    std::vector<uint8_t> out(file.begin(), file.end() - 2);
    for (int i = 0; i < more; ++i) out.insert(out.end(), scan, file.end() - 2);
    out.insert(out.end(), file.end() - 2, file.end());
    return out;
  };
  CHECK(values(decode_image(with_scans(60), "a.jpg")).size() == 3 * 64 * 64);
  CHECK(has(error_of([&] { decode_image(with_scans(110), "a.jpg"); }).what(), "more than 100 scans"));
}

TEST_CASE("a progressive JPEG that claims many pixels is refused before their memory is taken") {
  const auto refused = [](const std::vector<uint8_t>& bytes) {
    return std::string(error_of([&] { decode_image(bytes, "large.jpg"); }).what());
  };
  CHECK(has(refused(claiming(9000, 9000)),
            "large.jpg: decoding this progressive image needs more than 256 MiB; hint: save it smaller, or as a non-progressive image"));
  CHECK_FALSE(has(refused(claiming(200, 200)), "MiB"));  // the size is allowed, but pixels are missing
}

TEST_CASE("the memory that a progressive JPEG claims is not taken" * only_if(kCountsMemory, "sanitizers reserve terabytes of addresses")) {
  CHECK(runs_within(300, [&] {
    const Error e = error_of([] { decode_box(claiming(9000, 9000), "large.jpg", {0, 0, 9000, 9000}, 64, 64); });
    if (e.kind() != ErrorKind::Data || has(e.what(), "end marker")) throw std::runtime_error("out of memory");
  }));
}

TEST_CASE("written PNG files have the same pixels, written JPEG files nearly") {
  for (const int64_t channels : {1, 3}) {
    const Image image = soft(33, 47, channels);
    Image rgb = Image::allocate(33, 47, 3);
    for (int64_t c = 0; c < 3; ++c) std::copy_n(image.plane(channels == 1 ? 0 : c), image.pixels(), rgb.mutable_plane(c));
    for (const auto order : {PixelOrder::Planar, PixelOrder::Packed}) {
      CHECK(values(decode_image(encode_png(image.dense(order)), "a.png")) == values(rgb));
      CHECK(largest_difference(values(decode_image(encode_jpeg(image.dense(order), 95), "a.jpg")), values(rgb)) <= 8);
    }
    CHECK(read_header(encode_png(image), "a.png").channels == channels);
    CHECK(read_header(encode_jpeg(image, 90), "a.jpg").channels == channels);
    CHECK(encode_jpeg(image, 20).size() < encode_jpeg(image, 95).size());
  }
  const Image noise = rough(300, 200, 1);  // its file is larger than the first buffer of libjpeg
  const auto file = encode_jpeg(noise, 100);
  CHECK(file.size() > 20'000);
  const Image back = decode_image(file, "a.jpg");
  int64_t far = 0;
  for (int64_t y = 0; y < 300; ++y)
    for (int64_t x = 0; x < 200; ++x) far += std::abs(back.at(1, y, x) - noise.at(0, y, x)) > 3;
  CHECK(far == 0);
  CHECK(decode_image(encode_png(noise.mirrored()), "a.png").at(0, 7, 3) == noise.at(0, 7, 196));
  CHECK(read_header(encode_png(rough(2, 2, 4)), "a.png").channels == 4);
  CHECK(error_of([&] { encode_png(rough(2, 2, 2)); }).kind() == ErrorKind::Usage);
  for (const int64_t channels : {2, 4}) CHECK(error_of([&] { encode_jpeg(rough(2, 2, channels), 90); }).kind() == ErrorKind::Usage);
  for (const int quality : {-1, 0, 101}) CHECK(error_of([&] { encode_jpeg(noise, quality); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a header says how the pixels are stored") {
  const auto stored = [](const std::vector<uint8_t>& file) {
    const auto header = read_header(file, "a");
    return std::vector<int64_t>{header.channels, header.bits, header.palette};
  };
  CHECK(stored(to_png(soft(4, 5, 1))) == std::vector<int64_t>{1, 8, 0});
  CHECK(stored(to_png(soft(4, 5, 3))) == std::vector<int64_t>{3, 8, 0});
  CHECK(stored(to_png(soft(4, 5, 4))) == std::vector<int64_t>{4, 8, 0});
  CHECK(stored(to_png(soft(4, 5, 3), 16)) == std::vector<int64_t>{3, 16, 0});
  CHECK(stored(to_jpeg(soft(4, 5, 1))) == std::vector<int64_t>{1, 8, 0});
  CHECK(stored(to_jpeg(soft(4, 5, 3))) == std::vector<int64_t>{3, 8, 0});
  CHECK(stored(to_jpeg(soft(4, 5, 3), {90, 1, false, true})) == std::vector<int64_t>{4, 8, 0});
}
