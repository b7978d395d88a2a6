#include "testing.hpp"

#include "npu_train/engine/image_preparation.hpp"

#include <ATen/ATen.h>

#include "data/images.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("as for ImageNet: the shorter side, the centre, the normalisation; an image of the model's size is only normalised") {
  const TempDir dir;
  const auto small = (dir / "small.png").string(), wide = (dir / "wide.png").string();
  write_bytes(small, to_png(rough(28, 28)));
  write_bytes(wide, to_png(rough(32, 64)));
  const auto preparation = ImagePreparation::of_imagenet(28, {0.5, 0.25, 0}, {0.5, 1, 2});
  const auto bytes = preparation.read_bytes(small);
  CHECK((bytes.scalar_type() == at::kByte));
  REQUIRE((bytes.sizes() == at::IntArrayRef({28, 28, 3})));
  for (int64_t y = 0; y < 28; ++y)
    for (int64_t c = 0; c < 3; ++c) CHECK(bytes[y][5][c].item<int>() == rough(28, 28).at(c, y, 5));
  // 32 x 64 already has the shorter side 32 = 28 * 256 / 224, so that only its centre is cropped.
  const auto cut = preparation.read_bytes(wide);
  CHECK(cut[0][0][1].item<int>() == rough(32, 64).at(1, 2, 18));
  for (const auto& path : {small, wide}) {
    const auto values = preparation.read_bytes(path).to(at::kFloat) / 255;
    const auto expected = ((values - at::tensor({0.5F, 0.25F, 0.0F})) / at::tensor({0.5F, 1.0F, 2.0F})).permute({2, 0, 1});
    CHECK(at::allclose(preparation.read(path), expected, 1e-5, 1e-5));
  }
}

TEST_CASE("the steps as text are the same steps") {
  const TempDir dir;
  const auto path = (dir / "a.png").string();
  write_bytes(path, to_png(rough(50, 41)));
  const auto preparation = ImagePreparation::of_imagenet(28, {0.1, 0.2, 0.3}, {0.4, 0.5, 0.6});
  CHECK(preparation.steps_text() == "[{name: resize, size: 32}, {name: center_crop, size: 28}, {name: normalize}]");
  const TransformContext context{28, {0.1, 0.2, 0.3}, {0.4, 0.5, 0.6}};
  const auto same = ImagePreparation::from_text(preparation.steps_text(), context);
  CHECK(at::equal(same.read(path), preparation.read(path)));
  for (const char* text : {"[{name: no_such_step}]", "{", "5", "[{name: resize, size: x}]"})
    CHECK(error_of([&] { ImagePreparation::from_text(text, context); }).kind() == ErrorKind::Usage);
}

TEST_CASE("files that are no images") {
  const TempDir dir;
  const auto path = (dir / "a.png").string();
  write_bytes(path, {1, 2, 3});
  const auto preparation = ImagePreparation::of_imagenet(28);
  CHECK(error_of([&] { preparation.read(path); }).kind() == ErrorKind::Data);
  CHECK(error_of([&] { preparation.read_bytes((dir / "none.png").string()); }).kind() == ErrorKind::Data);
}
