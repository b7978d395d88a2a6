#include "testing.hpp"

#include "npu_train/data/rand_augment.hpp"

#include "images.hpp"

using namespace npu_train;
using namespace npu_train::testing;

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
