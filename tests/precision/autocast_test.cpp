#include "testing.hpp"

#include <c10/core/GradMode.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <stdexcept>
#include <thread>

#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/fp32_region.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
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
  CHECK(at::matmul(x, w).sum().item<float>() == 8);  // still uses the cached cast, which only the outermost end drops
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
