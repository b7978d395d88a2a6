#include "testing.hpp"

#include "npu_train/data/color.hpp"

#include <cmath>

#include "images.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

struct Hsv {
  double h, s, v;  // h is in turns: 1 is a full circle
};

Hsv to_hsv(double r, double g, double b) {
  const double v = std::max({r, g, b}), c = v - std::min({r, g, b});
  if (c == 0) return {0, 0, v};
  double h = v == r ? (g - b) / c : (v == g ? (b - r) / c + 2 : (r - g) / c + 4);
  h = h / 6 - std::floor(h / 6);
  return {h, c / v, v};
}

void from_hsv(const Hsv& in, double (&rgb)[3]) {
  const double h6 = (in.h - std::floor(in.h)) * 6, f = h6 - std::floor(h6);
  const double p = in.v * (1 - in.s), q = in.v * (1 - in.s * f), t = in.v * (1 - in.s * (1 - f));
  const double table[6][3] = {{in.v, t, p}, {q, in.v, p}, {p, in.v, t}, {p, q, in.v}, {t, p, in.v}, {in.v, p, q}};
  for (int c = 0; c < 3; ++c) rgb[c] = table[static_cast<int>(h6) % 6][c];
}

}  // namespace

TEST_CASE("brightness, contrast and saturation give Pillow's bytes") {
  const Image image = rough(3, 4);
  CHECK(values(adjust_brightness(image, 1.3f)) == std::vector<int>{0,   48,  96,  144, 79,  152, 224, 255, 158, 255, 20,  118,
                                                                   126, 174, 222, 255, 205, 255, 18,  91,  255, 49,  146, 244,
                                                                   252, 255, 15,  63,  255, 71,  144, 217, 78,  175, 255, 37});
  CHECK(values(adjust_brightness(image, 0.7f)) == std::vector<int>{0,   25,  51,  77,  42,  81,  121, 160, 85,  137, 11,  63,
                                                                   67,  93,  119, 145, 110, 149, 9,   49,  153, 26,  79,  131,
                                                                   135, 161, 8,   34,  178, 38,  77,  116, 42,  94,  147, 20});
  CHECK(values(adjust_contrast(image, 1.4f)) == std::vector<int>{0,   1,   53,  105, 35,  113, 192, 255, 120, 225, 0,   77,
                                                                 85,  137, 189, 241, 171, 249, 0,   48,  255, 3,   108, 213,
                                                                 221, 255, 0,   18,  255, 27,  105, 183, 34,  139, 244, 0});
  CHECK(values(adjust_contrast(image, 0.6f)) == std::vector<int>{50,  72,  94,  116, 86,  120, 153, 187, 123, 168, 59,  104,
                                                                 108, 130, 152, 174, 144, 178, 58,  92,  181, 72,  117, 162,
                                                                 166, 188, 57,  79,  203, 83,  116, 150, 86,  131, 176, 67});
  CHECK(values(adjust_saturation(image, 1.5f)) == std::vector<int>{0,   0,   49,  86,  21,  92,  223, 255, 97,  247, 0,   66,
                                                                   106, 143, 194, 231, 167, 237, 0,   40,  242, 8,   122, 211,
                                                                   251, 255, 0,   0,   255, 0,   130, 186, 4,   154, 255, 0});
  CHECK(values(adjust_saturation(image, 0.4f)) == std::vector<int>{47,  84,  104, 141, 108, 147, 113, 169, 152, 137, 63,  121,
                                                                   86,  123, 142, 179, 147, 185, 49,  105, 190, 73,  102, 159,
                                                                   125, 162, 79,  116, 186, 122, 88,  144, 127, 112, 141, 96});
}

TEST_CASE("hue: the textbook in double precision, on every corner and face of the colour cube") {
  std::vector<uint8_t> planes;
  const int64_t n = 18 * 18 * 18;
  planes.resize(3 * n);
  for (int64_t i = 0; i < n; ++i) {
    planes[i] = static_cast<uint8_t>(i % 18 * 15);
    planes[n + i] = static_cast<uint8_t>(i / 18 % 18 * 15);
    planes[2 * n + i] = static_cast<uint8_t>(i / 324 * 15);
  }
  for (const float turns : {0.0f, 0.1f, -0.1f, 0.37f, 0.5f, -0.5f}) {
    const Image out = adjust_hue(Image::view(planes.data(), 1, n, 3), turns);
    double worst = 0;
    for (int64_t i = 0; i < n; ++i) {
      Hsv hsv = to_hsv(planes[i], planes[n + i], planes[2 * n + i]);
      hsv.h += turns;
      double rgb[3];
      from_hsv(hsv, rgb);
      for (int c = 0; c < 3; ++c) worst = std::max(worst, std::abs(rgb[c] - out.at(c, 0, i)));
    }
    CHECK(worst <= 0.51);
  }
}

TEST_CASE("hue: Pillow's bytes but for its rounding of the hue to 1/255") {
  const std::vector<int> turned = {14, 51, 12,  50, 75, 55,  173, 229, 60, 197, 30,  29, 0,  37, 171, 208, 61,  214,
                                   14, 70, 219, 39, 16, 188, 194, 231, 42, 80,  255, 85, 18, 74, 90,  42,  210, 59};
  CHECK(largest_difference(values(adjust_hue(rough(3, 4), 0.1f)), turned) <= 5);
  const std::vector<int> back = {59, 96,  171, 208, 120, 214, 14, 70, 219, 39, 76, 188, 194, 231, 12, 50,  255, 55,
                                 78, 134, 60,  102, 210, 29,  0,  37, 38,  76, 61, 82,  173, 229, 86, 197, 16,  56};
  CHECK(largest_difference(values(adjust_hue(rough(3, 4), -0.3f)), back) <= 5);
  CHECK(error_of([] { adjust_hue(rough(2, 2), 0.6f); }).kind() == ErrorKind::Usage);
}

TEST_CASE("gray images keep saturation and hue") {
  const Image gray = rough(3, 3, 1);
  CHECK(values(adjust_saturation(gray, 0.1f)) == values(gray));
  CHECK(values(adjust_hue(gray, 0.3f)) == values(gray));
  CHECK(values(adjust_contrast(gray, 1.0f)) == values(gray));
}

TEST_CASE("jitter stays within its strengths and draws a new order each time") {
  const ColorJitter only_brightness(0.2, 0, 0, 0);
  const Image flat = adjust_contrast(Image(ramp(4, 4)), 0.0f);
  const int base = flat.at(0, 0, 0);
  int low = 255, high = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    Philox rng(i);
    const int value = only_brightness.apply(flat, rng).at(0, 0, 0);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  CHECK(low >= static_cast<int>(base * 0.8) - 1);
  CHECK(high <= static_cast<int>(base * 1.2) + 1);
  CHECK(low < base * 0.85);
  CHECK(high > base * 1.15);
  Philox a(3), b(3);
  const ColorJitter all(0.2, 0.2, 0.2, 0.1);
  CHECK(values(all.apply(rough(8, 8), a)) == values(all.apply(rough(8, 8), b)));
  CHECK(error_of([] { ColorJitter(-0.1, 0, 0, 0); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { ColorJitter(0, 0, 0, 0.6); }).kind() == ErrorKind::Usage);
}

TEST_CASE("blur: torchvision's numbers") {
  const std::vector<int> three = {51,  75,  121, 138, 128, 88,  102, 126, 128, 111, 129, 119, 102, 97,  91,  131, 108, 80,  85,  94,
                                  148, 143, 125, 142, 166, 156, 136, 107, 124, 144, 130, 116, 120, 133, 127, 99,  109, 148, 150, 122,
                                  187, 144, 91,  105, 129, 157, 133, 111, 127, 150, 128, 135, 124, 113, 131, 132, 145, 114, 81,  96};
  CHECK(largest_difference(values(gaussian_blur(rough(4, 5), 3, 0.8)), three) <= 1);
  const std::vector<int> five = {95,  104, 110, 120, 120, 97,  104, 109, 117, 118, 106, 108, 103, 102, 100, 116, 115, 105, 101, 97,
                                 135, 134, 130, 132, 132, 132, 132, 129, 132, 131, 122, 126, 129, 134, 137, 120, 123, 124, 126, 129,
                                 140, 133, 128, 124, 126, 140, 132, 125, 119, 119, 139, 129, 123, 114, 111, 135, 126, 125, 118, 117};
  CHECK(largest_difference(values(gaussian_blur(rough(4, 5), 5, 1.5)), five) <= 1);
  CHECK(values(gaussian_blur(rough(1, 1), 3, 1.0)) == values(rough(1, 1)));
  CHECK(error_of([] { GaussianBlur(4); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { GaussianBlur(3, 0, 1); }).kind() == ErrorKind::Usage);
}
