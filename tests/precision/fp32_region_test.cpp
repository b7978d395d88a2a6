#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/precision/fp32_region.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

TEST_CASE("a region accepts and returns fp32 inside a low-precision forward, and gradients pass") {
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

TEST_CASE("names belong to modules by complete parts") {
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

TEST_CASE("a star matches characters inside one part of a name") {
  CHECK(in_modules("layer1.0", {"layer*.0"}));
  CHECK(in_modules("layer1.0.conv1.weight", {"layer*.0"}));
  CHECK_FALSE(in_modules("layer1.1", {"layer*.0"}));
  CHECK_FALSE(in_modules("layer1.2.0", {"layer*.0"}));
  CHECK(in_modules("encoder.layers.encoder_layer_11.ln_1.bias", {"*.*.*_11"}));
  CHECK_FALSE(in_modules("encoder.layers.encoder_layer_1", {"*.*.*_11"}));
  CHECK(in_modules("fc.weight", {"*"}));
  CHECK(in_modules("bn1", {"b*1*"}));
  CHECK_FALSE(in_modules("conv1", {"b*"}));
}

TEST_CASE("an exception from fp32_modules: the longest path that is named decides") {
  const AmpModules m{{"layer4", "layer3.*", "layer2.1.deep"}, {"layer4.1", "layer3.0", "layer2.1"}};
  CHECK(m.keeps_fp32("layer4"));
  CHECK(m.keeps_fp32("layer4.0.conv1.weight"));
  CHECK_FALSE(m.keeps_fp32("layer4.1"));
  CHECK_FALSE(m.keeps_fp32("layer4.1.conv1.weight"));
  CHECK(m.keeps_fp32("layer4.10"));
  CHECK_FALSE(m.keeps_fp32("layer3.0"));  // both lists name it
  CHECK(m.keeps_fp32("layer3.1"));
  CHECK_FALSE(m.keeps_fp32("layer2.1.conv1"));
  CHECK(m.keeps_fp32("layer2.1.deep.weight"));
  CHECK_FALSE(m.keeps_fp32("layer1"));
  CHECK(AmpModules{{""}, {"fc"}}.keeps_fp32("layer1"));
  CHECK_FALSE(AmpModules{{""}, {"fc"}}.keeps_fp32("fc.weight"));
  CHECK_NOTHROW(m.check());
  const auto e = error_of([] { AmpModules{{"a", "b"}, {"b"}}.check(); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(has(e.what(), "'b'"));
}

TEST_CASE("a normalisation layer is cast only by its own name") {
  const AmpModules m{{}, {"layer4", "*.*.ln_1"}};
  CHECK(m.casts("layer4"));
  CHECK_FALSE(m.casts("layer4.0.bn1"));
  CHECK(m.casts("encoder.layers.ln_1"));
  CHECK_FALSE(m.casts("encoder.layers.0.ln_1"));
}

TEST_CASE("an Autocast inside a region is an exception from it") {
  const auto x = at::rand({3, 3});
  const Autocast autocast(Device{}, at::kBFloat16);
  const Fp32Region region(Device{});
  {
    const Autocast inner(Device{}, at::kBFloat16);
    CHECK((at::matmul(x, x).scalar_type() == at::kBFloat16));
  }
  CHECK((at::matmul(x, x).scalar_type() == at::kFloat));
}
