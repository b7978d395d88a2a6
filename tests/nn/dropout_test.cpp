#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/device/portable_random.hpp"
#include "npu_train/nn/dropout.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

TEST_CASE("values are dropped with their probability and the rest is scaled up, from either source") {
  const at::Tensor x = at::ones({200, 200});
  for (const bool portable : {false, true}) {
    std::optional<PortableRandom> random;
    if (portable) random.emplace(3);
    const at::Tensor y = npu_train::dropout(x, 0.25, true);
    CHECK(std::abs((y == 0).to(at::kFloat).mean().item<double>() - 0.25) < 0.01);
    CHECK(at::allclose(y.masked_select(y != 0), at::full({1}, 1 / 0.75).to(at::kFloat)));
    CHECK(npu_train::dropout(x, 0.25, false).is_same(x));
    CHECK(npu_train::dropout(x, 0, true).is_same(x));
    CHECK(npu_train::dropout(x, 1, true).abs().max().item<float>() == 0);
    const at::Tensor path = drop_path(x, 0.5, true);
    for (int i = 0; i < 200; ++i) CHECK((path[i] == path[i][0]).all().item<bool>());
    CHECK(std::abs((path.select(1, 0) == 0).to(at::kFloat).mean().item<double>() - 0.5) < 0.15);
  }
  CHECK((error_of([&] { npu_train::dropout(x, 1.5, true); }).kind() == ErrorKind::Usage));
}

TEST_CASE("portable masks do not touch the device's generator") {
  at::manual_seed(1);
  const at::Tensor next = at::rand({3});
  at::manual_seed(1);
  const PortableRandom random(3);
  npu_train::dropout(at::ones({10}), 0.5, true);
  CHECK(at::equal(at::rand({3}), next));
}
