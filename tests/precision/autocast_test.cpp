#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <stdexcept>
#include <thread>

#include "npu_train/precision/autocast.hpp"

using namespace npu_train;

using npu_train::testing::error_of;
using npu_train::testing::has;

namespace ac = at::autocast;

namespace {

const Device kHost;

struct Snapshot {
  bool enabled = ac::is_autocast_enabled(at::kCPU);
  at::ScalarType dtype = ac::get_autocast_dtype(at::kCPU);
  bool cache = ac::is_autocast_cache_enabled();
  int nesting = [] {
    const int n = ac::increment_nesting() - 1;
    ac::decrement_nesting();
    return n;
  }();
  bool operator==(const Snapshot&) const = default;
};

at::ScalarType product_type() { return at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

}  // namespace

TEST_CASE("products run in the low precision inside, in fp32 outside") {
  CHECK((product_type() == at::kFloat));
  {
    const Autocast autocast(kHost, at::kBFloat16);
    CHECK((product_type() == at::kBFloat16));
  }
  CHECK((product_type() == at::kFloat));
  {
    const Autocast autocast(kHost, at::kHalf);
    CHECK((product_type() == at::kHalf));
  }
}

TEST_CASE("everything is restored, also after an exception") {
  const Snapshot before;
  {
    const Autocast autocast(kHost, at::kHalf, true, false);
    CHECK_FALSE(Snapshot() == before);
  }
  CHECK(Snapshot() == before);
  CHECK_THROWS_AS(
      [] {
        const Autocast outer(kHost, at::kHalf);
        const Autocast inner(kHost, at::kBFloat16, false, false);
        throw std::runtime_error("in the forward");
      }(),
      std::runtime_error);
  CHECK(Snapshot() == before);
  CHECK_THROWS([] {
    const Autocast outer(kHost, at::kBFloat16);
    at::matmul(at::ones({2, 3}), at::ones({2, 3}));
  }());
  CHECK(Snapshot() == before);
}

TEST_CASE("regions nest") {
  const Autocast outer(kHost, at::kBFloat16);
  {
    const Autocast inner(kHost, at::kHalf);
    CHECK((product_type() == at::kHalf));
  }
  CHECK((product_type() == at::kBFloat16));
  CHECK(ac::is_autocast_cache_enabled());
  {
    const Autocast inner(kHost, at::kBFloat16, true, false);
    CHECK_FALSE(ac::is_autocast_cache_enabled());
  }
  CHECK(ac::is_autocast_cache_enabled());
}

TEST_CASE("a disabled region inside an enabled one computes in the dtype of its inputs") {
  const Autocast outer(kHost, at::kBFloat16);
  {
    const Autocast off(kHost, at::kBFloat16, false);
    CHECK((product_type() == at::kFloat));
    {
      const Autocast on_again(kHost, at::kBFloat16);
      CHECK((product_type() == at::kBFloat16));
    }
    CHECK((product_type() == at::kFloat));
  }
  CHECK((product_type() == at::kBFloat16));
}

TEST_CASE("a weight that changes between two regions is seen by the second") {
  auto w = at::ones({2, 2}).set_requires_grad(true);
  const auto x = at::ones({2, 2});
  const auto forward = [&] {
    const Autocast autocast(kHost, at::kBFloat16);
    return at::matmul(x, w).sum().item<float>();
  };
  CHECK(forward() == 8);
  {
    const c10::NoGradGuard no_grad;
    w.mul_(3);
  }
  CHECK(forward() == 24);
}

TEST_CASE("within one outermost region the cast of a weight is kept over inner ones") {
  auto w = at::ones({2, 2}).set_requires_grad(true);
  const auto x = at::ones({2, 2});
  const Autocast outer(kHost, at::kBFloat16);
  CHECK(at::matmul(x, w).sum().item<float>() == 8);
  { const Autocast inner(kHost, at::kBFloat16); }
  {
    const c10::NoGradGuard no_grad;
    w.mul_(3);
  }
  CHECK(at::matmul(x, w).sum().item<float>() == 8);  // still uses the cached cast, which is dropped at the end of the outermost scope
}

TEST_CASE("other threads see nothing") {
  const Autocast autocast(kHost, at::kBFloat16);
  at::ScalarType there = at::kByte;
  std::thread([&] { there = product_type(); }).join();
  CHECK((there == at::kFloat));
}

TEST_CASE("gradients come back in the dtype of the parameters") {
  auto w = at::rand({4, 4}).set_requires_grad(true);
  at::Tensor loss;
  {
    const Autocast autocast(kHost, at::kBFloat16);
    loss = at::matmul(at::rand({4, 4}), w).sum();
  }
  loss.backward();
  CHECK((w.grad().scalar_type() == at::kFloat));
}

TEST_CASE("only low precisions are taken") {
  const Snapshot before;
  CHECK(error_of([] { Autocast(kHost, at::kFloat); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { Autocast(kHost, at::kInt); }).kind() == ErrorKind::Usage);
  CHECK(Snapshot() == before);
}

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
