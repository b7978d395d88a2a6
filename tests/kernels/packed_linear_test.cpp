#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "npu_train/kernels/packed_linear.hpp"
#include "only_if.hpp"

namespace npu_train {
namespace {

bool packs() { return detail::has_packed_product(at::ones({2000, 8}), at::ones({4, 8}), {}); }

}  // namespace

TEST_CASE("few rows, other layouts and other sizes are not packed") {
  CHECK_FALSE(detail::has_packed_product(at::ones({100, 8}), at::ones({4, 8}), {}));
  CHECK_FALSE(detail::has_packed_product(at::ones({2000, 8}), at::ones({4, 7}), {}));
  CHECK_FALSE(detail::has_packed_product(at::ones({2000}), at::ones({4, 8}), {}));
}

TEST_CASE("a packed product gives the value and the gradients of linear in double" *
          testing::only_if(packs(), "this processor's products are fastest unpacked")) {
  at::manual_seed(1);
  at::Tensor x = at::randn({1200, 24}), w = at::randn({20, 24}), b = at::randn({20});
  const at::Tensor x64 = x.to(at::kDouble).requires_grad_(), w64 = w.to(at::kDouble).requires_grad_();
  x.requires_grad_(), w.requires_grad_();
  const at::Tensor y = detail::packed_product(x, w, b), want = at::linear(x64, w64, b.to(at::kDouble)), up = at::randn(y.sizes());
  CHECK(at::allclose(y.to(at::kDouble), want, 1e-5, 1e-5));
  y.backward(up);
  want.backward(up.to(at::kDouble));
  CHECK(at::allclose(x.grad().to(at::kDouble), x64.grad(), 1e-5, 1e-5));
  CHECK(at::allclose(w.grad().to(at::kDouble), w64.grad(), 1e-5, 1e-3));
}

}  // namespace npu_train
