#include "testing.hpp"

#include <ATen/ATen.h>

#include <vector>

#include "double_backward.hpp"
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

TEST_CASE("many rows of plain tensors are packed" * testing::only_if(packs(), "this processor's products are fastest unpacked")) {
  const at::Tensor x = at::ones({1024, 8}), w = at::ones({4, 8}), b = at::ones({4});
  CHECK(detail::has_packed_product(x, w, {}));
  CHECK(detail::has_packed_product(x.view({2, 512, 8}), w, b));
  CHECK_FALSE(detail::has_packed_product(x.narrow(0, 0, 1023), w, b));
  CHECK_FALSE(detail::has_packed_product(x, w, at::ones({5})));
  CHECK_FALSE(detail::has_packed_product(x, w, at::ones({4, 1})));
  CHECK_FALSE(detail::has_packed_product(x, at::ones({0, 8}), {}));
  CHECK_FALSE(detail::has_packed_product(x, at::ones({1, 4, 8}), {}));
}

TEST_CASE("a packed product gives the value and the gradients of linear in double" *
          testing::only_if(packs(), "this processor's products are fastest unpacked")) {
  at::manual_seed(1);
  for (const bool biased : {false, true}) {
    CAPTURE(biased);
    at::Tensor x = at::randn({2, 600, 24}), w = at::randn({20, 24}), b = biased ? at::randn({20}) : at::Tensor();
    std::vector<at::Tensor> exact;
    for (auto* t : {&x, &w, &b}) {
      if (!t->defined()) continue;
      exact.push_back(t->to(at::kDouble).requires_grad_());
      t->requires_grad_();
    }
    const at::Tensor y = detail::packed_product(x, w, b), up = at::randn(y.sizes());
    const at::Tensor want = at::linear(exact[0], exact[1], biased ? exact[2] : at::Tensor());
    CHECK(y.sizes() == want.sizes());
    CHECK(at::allclose(y.to(at::kDouble), want, 1e-5, 1e-5));
    y.backward(up);
    want.backward(up.to(at::kDouble));
    CHECK(at::allclose(x.grad().to(at::kDouble), exact[0].grad(), 1e-5, 1e-5));
    // The sums have 1200 terms, the largest of which is near 100.
    CHECK(at::allclose(w.grad().to(at::kDouble), exact[1].grad(), 1e-5, 1e-4));
    if (biased) CHECK(at::allclose(b.grad().to(at::kDouble), exact[2].grad(), 1e-5, 1e-4));
  }
}

TEST_CASE("in low precision it is the product of fp32 rounded once; a double backward is an Error" *
          testing::only_if(packs(), "this processor's products are fastest unpacked")) {
  at::manual_seed(2);
  const auto low = [](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); };
  at::Tensor in[] = {low({1200, 24}), low({20, 24}), low({20})}, wide[3];
  for (size_t i = 0; i < 3; ++i) wide[i] = in[i].to(at::kFloat).requires_grad_(), in[i].requires_grad_();
  const at::Tensor y = detail::packed_product(in[0], in[1], in[2]), y32 = detail::packed_product(wide[0], wide[1], wide[2]);
  CHECK(y.equal(y32.to(at::kBFloat16)));
  const at::Tensor up = low(y.sizes());
  testing::check_no_double_backward(y, in[1]);
  y.backward(up);
  y32.backward(up.to(at::kFloat));
  for (size_t i = 0; i < 3; ++i) CHECK(in[i].grad().equal(wide[i].grad().to(at::kBFloat16)));
}

}  // namespace npu_train
