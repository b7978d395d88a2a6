#include "testing.hpp"

#include "npu_train/data/geometry.hpp"

#include <cmath>
#include <set>

#include "images.hpp"

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
