#include "testing.hpp"

#include <cmath>
#include <set>

#include "images.hpp"
#include "npu_train/data/image_transforms.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("resize of the shorter side keeps the proportions, rounded down; both sides when asked") {
  CHECK(Resize(6).output_size({13, 17}) == ImageSize{6, 7});
  CHECK(Resize(6).output_size({17, 13}) == ImageSize{7, 6});
  CHECK(Resize(6).output_size({-1, -1}) == ImageSize{-1, -1});
  CHECK(Resize(6, 9).output_size({-1, -1}) == ImageSize{6, 9});
  Philox rng(0);
  const Image out = Resize(6).apply(rough(13, 17), rng);
  CHECK(out.height() == 6);
  CHECK(out.width() == 7);
  CHECK(error_of([] { Resize(0); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the centre crop takes torchvision's pixels, padding with zeros") {
  Philox rng(0);
  const Image cut = CenterCrop(4).apply(rough(7, 8), rng);
  CHECK(values(cut)[0] == 16);  // halves round to even: rows from 2, columns from 2
  CHECK(values(cut)[1] == 91);
  const Image padded = CenterCrop(6).apply(rough(3, 4), rng);
  const std::vector<int> red = {0, 0,   0,   0,  0,  0, 0, 0, 37, 74, 111, 0, 0, 61, 117, 173, 229, 0,
                                0, 122, 197, 16, 91, 0, 0, 0, 0,  0,  0,   0, 0, 0,  0,   0,   0,   0};
  auto got = values(padded);
  got.resize(36);
  CHECK(got == red);
}

TEST_CASE("the random crop reaches every place and refuses what is too small") {
  const RandomCrop crop(4, 1);
  std::set<int> corners;
  for (uint64_t i = 0; i < 400; ++i) {
    Philox rng(i);
    const Image out = crop.apply(rough(4, 4), rng);
    CHECK(out.height() == 4);
    // The new position of pixel (1, 1) shows the position of the crop.
    for (int y = 0; y < 3; ++y) {
      for (int x = 0; x < 3; ++x) {
        if (out.at(0, y, x) == rough(4, 4).at(0, 1, 1) && out.at(1, y, x) == rough(4, 4).at(1, 1, 1)) corners.insert(y * 3 + x);
      }
    }
  }
  CHECK(corners.size() == 9);
  Philox rng(0);
  CHECK(error_of([&] { RandomCrop(9, 2).apply(rough(4, 4), rng); }).kind() == ErrorKind::Data);
}

TEST_CASE("the resized crop draws area and shape within their bounds, and falls back to the middle") {
  const RandomResizedCrop crop(8);
  double least = 1, most = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    Philox rng(i);
    const PixelBox box = crop.draw(300, 400, rng);
    CHECK((box.top >= 0 && box.left >= 0 && box.top + box.height <= 300 && box.left + box.width <= 400));
    const double area = static_cast<double>(box.height * box.width) / (300.0 * 400.0);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    CHECK((ratio > 0.74 && ratio < 1.35));
    least = std::min(least, area);
    most = std::max(most, area);
  }
  CHECK((least > 0.078 && least < 0.1));
  CHECK((most > 0.9 && most <= 1.0));
  Philox rng(1);
  const PixelBox wide = crop.draw(3, 1000, rng);
  CHECK(wide.height == 3);
  CHECK(wide.width == 4);
  CHECK(wide.left == 498);
  CHECK(error_of([] { RandomResizedCrop(8, 0.5, 0.2); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a resized crop of a file is that of its pixels") {
  const Image image = ramp(120, 160);
  const auto png = to_png(image);
  const RandomResizedCrop crop(24);
  for (uint64_t i = 0; i < 20; ++i) {
    Philox a(i), b(i);
    CHECK(values(crop.apply_encoded(png, "ramp.png", a)) == values(crop.apply(image, b)));
  }
}

TEST_CASE("the flip mirrors about half of the images") {
  const HorizontalFlip flip;
  int mirrored = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    Philox rng(i);
    const Image out = flip.apply(rough(2, 3), rng);
    mirrored += out.at(0, 0, 0) == 74 ? 1 : 0;
  }
  CHECK((mirrored > 430 && mirrored < 570));
}

TEST_CASE("rotation: Pillow's bytes") {
  const std::vector<int> turned = {0,  0,  111, 148, 185, 222, 64,  0,   37, 74,  229, 29, 85,  85,  183, 125, 61,  117, 16,
                                   91, 33, 108, 225, 186, 122, 197, 115, 76, 170, 131, 11, 247, 183, 21,  81,  194, 174, 31,
                                   53, 52, 244, 101, 180, 180, 179, 55,  77, 95,  0,   49, 5,   23,  41,  59,  0,   0};
  auto got = values(rotate_nearest(rough(7, 8), 15));
  got.resize(turned.size());
  CHECK(got == turned);
  const std::vector<int> back = {0,   122, 122, 117, 74,  111, 0,   0,  244, 183, 197, 16, 229, 229, 148, 0,   244, 101, 115,
                                 115, 91,  29,  85,  222, 181, 180, 81, 76,  170, 108, 85, 141, 5,   180, 179, 174, 131, 131,
                                 183, 125, 0,   41,  55,  55,  31,  11, 186, 125, 0,   0,  59,  77,  53,  247, 247, 0};
  got = values(rotate_nearest(rough(7, 8), -40));
  got.resize(back.size());
  CHECK(got == back);
}

TEST_CASE("rotation by a right angle moves every pixel; a fill stands outside") {
  const Image square = rough(6, 6);
  const Image turned = rotate_nearest(square, 90);
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 6; ++x) CHECK(turned.at(0, y, x) == square.at(0, x, 5 - y));
  }
  CHECK(rotate_nearest(square, 45, 7).at(0, 0, 0) == 7);
  int most = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    Philox rng(i);
    most = std::max(most, static_cast<int>(values(RandomRotation(15).apply(square, rng)) != values(square)));
  }
  CHECK(most == 1);
}

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

TEST_CASE("sharpness, posterise, solarise, autocontrast and equalise give Pillow's bytes") {
  CHECK(values(adjust_sharpness(rough(4, 5), 1.6f)) ==
        std::vector<int>{0,   37,  74,  111, 148, 61,  129, 196, 255, 29,  122, 232, 0,   85,  33,  183, 21,  115, 76,  170,
                         97,  134, 171, 208, 245, 158, 249, 0,   40,  126, 219, 2,   107, 218, 130, 24,  118, 212, 173, 11,
                         194, 231, 12,  49,  86,  255, 19,  111, 185, 223, 60,  135, 251, 0,   227, 121, 215, 53,  14,  108});
  CHECK(values(posterize(rough(3, 4), 3)) == std::vector<int>{0,   32,  64,  96,  32,  96,  160, 224, 96,  192, 0,   64,
                                                              96,  128, 160, 192, 128, 192, 0,   64,  192, 32,  96,  160,
                                                              192, 224, 0,   32,  224, 32,  96,  160, 32,  128, 192, 0});
  CHECK(values(solarize(rough(3, 4), 128)) == std::vector<int>{0,  37,  74, 111, 61, 117, 82,  26, 122, 58,  16,  91,
                                                               97, 121, 84, 47,  97, 41,  14,  70, 36,  38,  113, 67,
                                                               61, 24,  12, 49,  0,  55,  111, 88, 60,  120, 45,  29});
  CHECK(values(autocontrast(ramp(3, 4))) == std::vector<int>{0, 43, 87, 131, 61, 105, 149, 193, 123, 167, 211, 255,
                                                             0, 43, 87, 131, 61, 105, 149, 193, 123, 167, 211, 254,
                                                             0, 43, 87, 131, 61, 105, 149, 193, 123, 167, 211, 255});
  CHECK(values(equalize(ramp(16, 20)).crop(0, 0, 3, 4)) == std::vector<int>{0,  2,  4,  7,  3,  5,  8,  12, 6,  9,  13, 18,
                                                                            19, 21, 23, 26, 22, 24, 27, 31, 25, 28, 32, 37,
                                                                            66, 68, 70, 73, 69, 71, 74, 78, 72, 75, 79, 84});
  CHECK(values(autocontrast(ramp(1, 1))) == values(ramp(1, 1)));
  CHECK(values(equalize(ramp(1, 1))) == values(ramp(1, 1)));
}

TEST_CASE("without operations the image is unchanged; more or stronger ones change it more on average") {
  const Image image = ramp(24, 24);
  const auto distance = [&](int64_t ops, int64_t magnitude) {
    double sum = 0;
    for (uint64_t i = 0; i < 60; ++i) {
      Philox rng(i);
      sum += mean_difference(values(RandAugment(ops, magnitude).apply(image, rng)), values(image));
    }
    return sum / 60;
  };
  CHECK(distance(0, 9) == 0.0);
  CHECK(distance(1, 9) > 1.0);
  CHECK(distance(3, 9) > distance(1, 9));
  CHECK(distance(2, 28) > distance(2, 5));
  CHECK(error_of([] { RandAugment(2, 31); }).kind() == ErrorKind::Usage);
}

TEST_CASE("erasing fills one box with the mean colour, as often as asked") {
  const Image image = ramp(32, 32);
  const RandomErasing erasing(0.5, 0.02, 0.33, 0.3, 3.3, {0.0, 1.0, 0.2});
  int erased = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    Philox rng(i);
    const Image out = erasing.apply(image, rng);
    int64_t top = 99, bottom = -1, left = 99, right = -1, count = 0;
    for (int64_t y = 0; y < 32; ++y) {
      for (int64_t x = 0; x < 32; ++x) {
        if (out.at(1, y, x) == image.at(1, y, x)) continue;
        CHECK((out.at(0, y, x) == 0 && out.at(1, y, x) == 255 && out.at(2, y, x) == 51));
        top = std::min(top, y), bottom = std::max(bottom, y), left = std::min(left, x), right = std::max(right, x);
        ++count;
      }
    }
    if (count == 0) continue;
    ++erased;
    CHECK(count == (bottom - top + 1) * (right - left + 1));
    CHECK((count > 0.01 * 1024 && count < 0.4 * 1024));
  }
  CHECK((erased > 150 && erased < 250));
  CHECK(error_of([] { RandomErasing(0.5, 0.4, 0.2); }).kind() == ErrorKind::Usage);
}
