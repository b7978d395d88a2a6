#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/precision/fp32_region.hpp"

using namespace npu_train;

TEST_CASE("a region takes and gives fp32 inside a low-precision forward, and gradients pass") {
  auto w = at::rand({3, 3}).set_requires_grad(true);
  auto x = at::rand({3, 3}).set_requires_grad(true);
  const Autocast autocast(Device{}, at::kBFloat16);
  const auto hidden = at::matmul(x, w);
  REQUIRE((hidden.scalar_type() == at::kBFloat16));
  at::Tensor out;
  {
    const Fp32Region region(Device{});
    out = at::matmul(region.in(hidden), w);
    CHECK((out.scalar_type() == at::kFloat));
  }
  CHECK((at::matmul(x, w).scalar_type() == at::kBFloat16));
  out.sum().backward();
  CHECK(x.grad().defined());
  CHECK((x.grad().scalar_type() == at::kFloat));
}

TEST_CASE("what is not low precision passes unchanged") {
  const Fp32Region region(Device{});
  const auto ids = at::arange(3);
  CHECK(region.in(ids).is_same(ids));
  const auto x = at::rand({2});
  CHECK(region.in(x).is_same(x));
  const auto d = at::rand({2}, at::kDouble);
  CHECK(region.in(d).is_same(d));
}

TEST_CASE("names belong to modules by whole parts") {
  const std::vector<std::string> modules = {"head", "layer1.0"};
  CHECK(in_modules("head", modules));
  CHECK(in_modules("head.weight", modules));
  CHECK(in_modules("layer1.0.conv1.weight", modules));
  CHECK_FALSE(in_modules("header.weight", modules));
  CHECK_FALSE(in_modules("layer1.01.weight", modules));
  CHECK_FALSE(in_modules("layer1", modules));
  CHECK_FALSE(in_modules("x.head", modules));
  CHECK_FALSE(in_modules("anything", {}));
  CHECK(in_modules("anything", {""}));
}
