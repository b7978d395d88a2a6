#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/device/portable_random.hpp"
#include "npu_train/nn/attention.hpp"

using namespace npu_train;

TEST_CASE("attention by its parts equals the fused kernel, dropout apart") {
  const at::Tensor q = at::randn({2, 3, 7, 8}), k = at::randn({2, 3, 7, 8}), v = at::randn({2, 3, 7, 8}), mask = at::randn({7, 7});
  const at::Tensor keep = at::ones({7, 7}, at::kBool).tril();
  const auto near = [](const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-4, 1e-5); };
  const double tiny = 1e-12;  // drops nothing, but takes the parts
  const PortableRandom random(1);
  CHECK(near(attention(q, k, v, std::nullopt, tiny), attention(q, k, v)));
  CHECK(near(attention(q, k, v, mask, tiny), attention(q, k, v, mask)));
  CHECK(near(attention(q, k, v, keep, tiny), attention(q, k, v, std::nullopt, 0, true)));
  CHECK(near(attention(q, k, v, std::nullopt, tiny, true), attention(q, k, v, keep)));
}
