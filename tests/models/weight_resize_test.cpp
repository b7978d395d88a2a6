#include "testing.hpp"

#include "npu_train/models/weight_resize.hpp"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "models/by_path.hpp"
#include "npu_train/models/weights.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("positions: the class token's stays, the others are interpolated as a square") {
  const auto positions = at::randn({1, 10, 4});
  const auto larger = resize_positions(positions, 26);
  REQUIRE(larger.sizes() == at::IntArrayRef({1, 26, 4}));
  CHECK(at::equal(larger.select(1, 0), positions.select(1, 0)));
  // Values that depend only on the row of a patch still do so in the resized positions, and still rise from row to row.
  auto rows = at::zeros({1, 10, 1});
  for (int64_t i = 0; i < 9; ++i) rows[0][1 + i][0] = static_cast<double>(i / 3);
  const auto square = resize_positions(rows, 26).narrow(1, 1, 25).reshape({5, 5});
  CHECK(at::allclose(square, square.select(1, 0).unsqueeze(1).expand({5, 5})));
  CHECK(square.select(1, 0).diff().min().item<double>() > 0.1);
  // Equal positions stay equal, and so does the middle of a square with an odd side.
  CHECK(at::allclose(resize_positions(at::full({1, 17, 2}, 3.0), 5), at::full({1, 5, 2}, 3.0)));
  CHECK(at::allclose(larger.select(1, 13), positions.select(1, 5), 1e-4, 1e-5));
}

TEST_CASE("positions of a distillation token, and of the patches alone") {
  const auto two = at::randn({1, 11, 4}), alone = at::randn({1, 9, 4});
  const auto larger = resize_positions(two, 27);
  CHECK(at::equal(larger.narrow(1, 0, 2), two.narrow(1, 0, 2)));
  CHECK(at::equal(larger.narrow(1, 2, 25), resize_positions(two.narrow(1, 1, 10), 26).narrow(1, 1, 25)));
  CHECK(at::equal(resize_positions(alone, 10), at::cat({at::zeros({1, 1, 4}), alone}, 1)));
  CHECK(at::equal(resize_positions(alone, 11), at::cat({at::zeros({1, 2, 4}), alone}, 1)));
  CHECK(error_of([&] { resize_positions(two, 26); }).kind() == ErrorKind::Usage);
  CHECK(at::equal(resized_weight("encoder.pos_embedding", alone, {1, 10, 4}).narrow(1, 1, 9), alone));
}

TEST_CASE("patches: resized images give the same tokens") {
  const auto projection = at::randn({4, 3, 2, 2});
  const auto larger = resize_patches(projection, 4);
  REQUIRE(larger.sizes() == at::IntArrayRef({4, 3, 4, 4}));
  const auto image = at::randn({1, 3, 2, 2});
  const auto resized = resize_positions(at::cat({at::zeros({1, 1, 3}), image.flatten(2).transpose(1, 2)}, 1), 17);
  const auto large_image = resized.narrow(1, 1, 16).transpose(1, 2).reshape({1, 3, 4, 4});
  CHECK(at::allclose(at::conv2d(large_image, larger), at::conv2d(image, projection), 1e-4, 1e-5));
}

TEST_CASE("shapes that cannot be resized") {
  CHECK(error_of([] { resize_positions(at::zeros({1, 8, 4}), 17); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { resize_positions(at::zeros({1, 10, 4}), 16); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { resize_positions(at::zeros({10, 4}), 17); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { resize_patches(at::zeros({4, 3, 2, 3}), 4); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { resize_patches(at::zeros({4, 3, 2, 2}), 0); }).kind() == ErrorKind::Usage);
  CHECK_FALSE(resized_weight("pos_embedding", at::zeros({1, 5, 4}), {1, 10, 4}).defined());
  CHECK_FALSE(resized_weight("encoder.pos_embedding", at::zeros({1, 5, 4}), {1, 10, 8}).defined());
  CHECK_FALSE(resized_weight("encoder.pos_embedding", at::zeros({1, 6, 4}), {1, 10, 4}).defined());
  CHECK_FALSE(resized_weight("conv_proj.weight", at::zeros({4, 3, 2, 2}), {4, 1, 4, 4}).defined());
  CHECK_FALSE(resized_weight("conv_proj.weight", at::zeros({4, 3, 2, 2}), {4, 3, 4, 2}).defined());
  CHECK_FALSE(resized_weight("conv_proj.weight", at::zeros({4, 3, 2, 2}, at::kLong), {4, 3, 4, 4}).defined());
}

TEST_CASE("a vit of another image size and patch size takes the weights, and the report names both conversions") {
  const ByPath from(vit_shapes(1, 4, 5, 2));
  ByPath to(vit_shapes(1, 4, 10, 4));
  const auto report = load_weights(to, named_state(from));
  CHECK(report.complete());
  CHECK(report.converted == std::vector<std::string>{"conv_proj.weight [4, 3, 4, 4] resized from [4, 3, 2, 2]",
                                                     "encoder.pos_embedding [1, 10, 4] resized from [1, 5, 4]"});
  const auto of = [](const ByPath& net, const std::string& name) {
    for (const auto& [n, value] : named_state(net))
      if (n == name) return value;
    return at::Tensor();
  };
  CHECK(at::equal(of(to, "encoder.pos_embedding"), resize_positions(of(from, "encoder.pos_embedding"), 10)));
  CHECK(at::equal(of(to, "conv_proj.weight"), resize_patches(of(from, "conv_proj.weight"), 4)));
}
