#include "testing.hpp"

#include "npu_train/data/image.hpp"

#include <cmath>

#include "images.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Resizes the box with the definition of antialiased bilinear interpolation, in double precision.
std::vector<double> reference_resize(const Image& image, int64_t h, int64_t w, double y0, double x0, double y1, double x1) {
  const auto weight = [](double begin, double end, int64_t out, int64_t i, int64_t k) {
    const double scale = (end - begin) / static_cast<double>(out);
    const double distance = static_cast<double>(k) + 0.5 - (begin + (static_cast<double>(i) + 0.5) * scale);
    return std::max(0.0, 1.0 - std::abs(distance) / std::max(scale, 1.0));
  };
  std::vector<double> out;
  for (int64_t c = 0; c < image.channels(); ++c) {
    for (int64_t y = 0; y < h; ++y) {
      for (int64_t x = 0; x < w; ++x) {
        double sum = 0, total = 0;
        for (int64_t v = static_cast<int64_t>(std::floor(y0)); v < static_cast<int64_t>(std::ceil(y1)); ++v) {
          for (int64_t u = static_cast<int64_t>(std::floor(x0)); u < static_cast<int64_t>(std::ceil(x1)); ++u) {
            const double part = weight(y0, y1, h, y, v) * weight(x0, x1, w, x, u);
            sum += part * image.at(c, v, u);
            total += part;
          }
        }
        out.push_back(sum / total);
      }
    }
  }
  return out;
}

double worst(const Image& image, const std::vector<double>& expected) {
  const auto got = values(image);
  REQUIRE(got.size() == expected.size());
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - expected[i]));
  return most;
}

}  // namespace

TEST_CASE("a window may reach outside, be mirrored and cut again: the same as doing it pixel by pixel") {
  const Image image = rough(5, 7);
  const Image window = image.crop(-2, 3, 6, 8).mirrored().crop(1, -1, 7, 6);
  const auto at = [&](int64_t c, int64_t y, int64_t x) -> int {  // follows the chain backwards
    const int64_t y1 = y + 1, x1 = x - 1;
    if (y1 < 0 || y1 >= 6 || x1 < 0 || x1 >= 8) return 0;
    const int64_t y2 = y1 - 2, x2 = 7 - x1 + 3;
    return y2 < 0 || y2 >= 5 || x2 < 0 || x2 >= 7 ? 0 : image.at(c, y2, x2);
  };
  std::vector<int> expected;
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 7; ++y) {
      for (int x = 0; x < 6; ++x) expected.push_back(at(c, y, x));
    }
  }
  CHECK(values(window) == expected);
  CHECK(values(window.dense(PixelOrder::Planar)) == expected);
  CHECK(values(window.dense(PixelOrder::Packed)) == expected);
  CHECK(values(window.dense(PixelOrder::Packed).mirrored().mirrored().dense(PixelOrder::Planar)) == expected);
}

TEST_CASE("what a crop cut away does not come back with a larger window") {
  const Image image = rough(6, 6);
  const Image cut = image.crop(2, 2, 2, 2).crop(-1, -1, 4, 4);
  CHECK(cut.at(0, 0, 0) == 0);
  CHECK(cut.at(0, 1, 1) == image.at(0, 2, 2));
  CHECK(cut.at(0, 3, 3) == 0);
}

TEST_CASE("floats are scaled bytes in planes or channels last, zeros outside become the shift") {
  const Image image = rough(4, 40).crop(-1, -3, 6, 45).mirrored();
  const float scale[4] = {0.5f, 2.0f, -1.0f, 1.0f}, shift[4] = {1.0f, -2.0f, 0.25f, 0.0f};
  std::vector<float> planes(3 * 6 * 45), last(planes.size());
  write_floats(image, {planes.data(), 6, 45, 3, false}, scale, shift);
  write_floats(image, {last.data(), 6, 45, 3, true}, scale, shift);
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t y = 0; y < 6; ++y) {
      for (int64_t x = 0; x < 45; ++x) {
        const float expected = static_cast<float>(image.at(c, y, x)) * scale[c] + shift[c];
        REQUIRE(planes[(c * 6 + y) * 45 + x] == expected);
        REQUIRE(last[(y * 45 + x) * 3 + c] == expected);
      }
    }
  }
  CHECK(error_of([&] { write_floats(image, {planes.data(), 5, 45, 3, false}, scale, shift); }).kind() == ErrorKind::Data);
}

TEST_CASE("a gray image fills three channels") {
  const Image gray = rough(3, 3, 1);
  const float scale[4] = {1, 1, 1, 1}, shift[4] = {};
  std::vector<float> out(27);
  write_floats(gray, {out.data(), 3, 3, 3, false}, scale, shift);
  CHECK(out[4] == static_cast<float>(gray.at(0, 1, 1)));
  CHECK(out[9 + 4] == out[4]);
  CHECK(out[18 + 4] == out[4]);
}

TEST_CASE("copies only if the pixels are shared") {
  Image image = rough(3, 3);
  const uint8_t* before = image.plane(0);
  const Image other = image;
  Image copy = std::move(image).own();
  CHECK((copy.plane(0) != before));
  const uint8_t* mine = copy.plane(0);
  CHECK((std::move(copy).own().plane(0) == mine));
}

TEST_CASE("resize: by the definition in double precision, at most half a step off where it rounds once") {
  const Resampling once{.exact = false};
  const Image image = rough(23, 31);
  CHECK(worst(resize(image, 8, 11, once), reference_resize(image, 8, 11, 0, 0, 23, 31)) <= 0.501);
  CHECK(worst(resize(image, 40, 50, once), reference_resize(image, 40, 50, 0, 0, 23, 31)) <= 0.501);
  CHECK(worst(resize(image, 7, 45, once), reference_resize(image, 7, 45, 0, 0, 23, 31)) <= 0.501);
  CHECK(worst(resize(image, 9, 10, once, 2.5, 3.25, 19.75, 30.5), reference_resize(image, 9, 10, 2.5, 3.25, 19.75, 30.5)) <= 0.501);
  CHECK(worst(resize(image.dense(PixelOrder::Packed), 8, 11, once), reference_resize(image, 8, 11, 0, 0, 23, 31)) <= 0.501);
}

TEST_CASE("resize: Pillow's numbers, and without its rounding between the two passes at most one off") {
  const std::vector<int> shrunk = {104, 120, 116, 122, 117, 119, 103, 118, 106, 119, 120, 96,  117, 100, 122, 125, 141, 131, 144, 117,
                                   131, 137, 133, 139, 134, 108, 121, 115, 123, 123, 112, 138, 125, 140, 127, 121, 117, 120, 122, 116,
                                   129, 109, 112, 114, 115, 129, 149, 135, 140, 142, 147, 136, 145, 129, 146, 123, 124, 127, 126, 135};
  CHECK(values(resize(rough(13, 17), 4, 5)) == shrunk);
  CHECK(largest_difference(values(resize(rough(13, 17), 4, 5, {.exact = false})), shrunk) <= 1);
  const std::vector<int> enlarged = {
      0,   5,   21,  37,  53,  69,  74,  31,  37,  57,  77,  97,  117, 124, 71,  80,  105, 130, 137, 144, 147, 112, 122, 153, 184, 123,
      63,  42,  153, 147, 128, 109, 90,  72,  66,  183, 160, 90,  21,  61,  102, 115, 97,  102, 118, 134, 150, 166, 171, 128, 134, 154,
      174, 139, 105, 93,  168, 171, 178, 185, 118, 53,  31,  209, 188, 128, 67,  80,  92,  96,  122, 115, 97,  78,  114, 151, 163, 24,
      37,  78,  118, 158, 199, 212, 194, 199, 215, 231, 137, 43,  12,  225, 213, 178, 143, 108, 73,  62,  222, 200, 135, 68,  94,  119,
      128, 93,  97,  109, 122, 152, 183, 193, 91,  103, 139, 175, 157, 138, 132, 121, 134, 175, 215, 146, 76,  53};
  CHECK(values(resize(rough(4, 3), 6, 7)) == enlarged);
  CHECK(largest_difference(values(resize(rough(4, 3), 6, 7, {.exact = false})), enlarged) <= 1);
}

TEST_CASE("images of impossible size are refused before memory is requested") {
  CHECK(error_of([] { Image::allocate(1'000'000, 1'000'000, 3); }).kind() == ErrorKind::Data);
  CHECK(error_of([] { Image::allocate(0, 5, 3); }).kind() == ErrorKind::Data);
  CHECK(error_of([] { Image::allocate(5, 5, 5); }).kind() == ErrorKind::Data);
}

namespace {

std::vector<float> as_floats(const Image& image) {
  const float scale[4] = {0.5f, 2.0f, -1.0f, 1.0f}, shift[4] = {1.0f, -2.0f, 0.25f, 0.0f};
  std::vector<float> out(static_cast<size_t>(3 * image.pixels()));
  write_floats(image, {out.data(), image.height(), image.width(), 3, false}, scale, shift);
  return out;
}

}  // namespace

TEST_CASE("pixels of a program are those of an image, in every layout, order and number of channels, with and without gaps") {
  const Image given = rough(5, 7, 4);
  for (const int64_t channels : {1, 3, 4}) {
    Image image = Image::allocate(5, 7, 3);  // what the view must show
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t i = 0; i < 35; ++i) image.mutable_plane(c)[i] = given.plane(channels == 1 ? 0 : c)[i];
    for (const auto layout : {ChannelLayout::Hwc, ChannelLayout::Chw}) {
      for (const auto order : {ChannelOrder::Rgb, ChannelOrder::Bgr}) {
        for (const int64_t gap : {0, 1, 12}) {
          INFO(channels, " channels, planes: ", layout == ChannelLayout::Chw, ", BGR: ", order == ChannelOrder::Bgr, ", gap ", gap);
          const ProgramPixels pixels(given, channels, layout, order, gap);
          const Image view = Image::view(pixels.view);
          CHECK(values(view) == values(image));
          CHECK(values(view.dense(PixelOrder::Planar)) == values(image));
          CHECK(values(view.dense(PixelOrder::Packed)) == values(image));
          CHECK(values(view.crop(-1, 2, 4, 7).mirrored()) == values(image.crop(-1, 2, 4, 7).mirrored()));
          CHECK(values(resize(view, 3, 4)) == values(resize(image, 3, 4)));
          CHECK(as_floats(view) == as_floats(image));
          CHECK(as_floats(view.mirrored().crop(1, 1, 9, 9)) == as_floats(image.mirrored().crop(1, 1, 9, 9)));
        }
      }
    }
  }
}

TEST_CASE("pixels of a program are read in place and never changed") {
  ProgramPixels pixels(rough(4, 6), 3, ChannelLayout::Hwc, ChannelOrder::Bgr, 3);
  const Image view = Image::view(pixels.view);
  pixels.bytes[2] = 211;  // red of the first pixel
  CHECK(view.at(0, 0, 0) == 211);
  const auto before = pixels.bytes;
  Image copy = Image(view).own();
  copy.mutable_plane(0)[0] = 5;
  CHECK(pixels.bytes == before);
}

TEST_CASE("a view of one pixel") {
  const std::vector<uint8_t> pixel = {10, 20, 30, 40};
  for (const auto layout : {ChannelLayout::Hwc, ChannelLayout::Chw}) {
    for (const int64_t channels : {3, 4}) {
      const ImageView view{
          .data = pixel.data(), .height = 1, .width = 1, .channels = channels, .layout = layout, .order = ChannelOrder::Bgr};
      CHECK(values(Image::view(view).dense(PixelOrder::Planar)) == std::vector<int>{30, 20, 10});
    }
  }
}

TEST_CASE("views without sense are refused with their numbers") {
  const std::vector<uint8_t> pixels(64);
  const auto refused = [&](const ImageView& view, const std::string& part) {
    const auto error = error_of([&] { Image::view(view); });
    CHECK(error.kind() == ErrorKind::Usage);
    CAPTURE(error.what());
    CHECK(has(error.what(), part));
  };
  const ImageView good{.data = pixels.data(), .height = 4, .width = 5};
  CHECK(Image::view(good).width() == 5);
  const auto with = [&](auto member, auto value) {
    auto out = good;
    out.*member = value;
    return out;
  };
  refused(with(&ImageView::data, static_cast<const uint8_t*>(nullptr)), "data is null");
  refused(with(&ImageView::height, int64_t{0}), "5 x 0 pixels");
  refused(with(&ImageView::width, int64_t{-5}), "-5 x 4 pixels");
  refused(with(&ImageView::height, int64_t{1} << 62), "at most 100000000");
  for (const int64_t channels : {-1, 0, 2, 5}) refused(with(&ImageView::channels, channels), "allowed: 1 (gray), 3");
  for (const int64_t stride : {int64_t{-15}, int64_t{14}, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()})
    refused(with(&ImageView::row_stride, stride), "row_stride is " + std::to_string(stride) + ", and a row has 15 bytes");
  refused(with(&ImageView::row_stride, std::numeric_limits<int64_t>::max()), "allowed: that many to 768614336404564650");  // 2^63 / 12
  auto planes = with(&ImageView::row_stride, int64_t{4});
  planes.layout = ChannelLayout::Chw;
  refused(planes, "a row has 5 bytes");
}
