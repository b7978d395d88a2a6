#include "testing.hpp"

#include "double_backward.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/packed_linear.hpp"
#include "npu_train/precision/autocast.hpp"

#include <torch/autograd.h>
#include <torch/types.h>

namespace npu_train {
namespace {

constexpr int64_t kMany = 1100;  // enough rows that packing the weights pays

bool is_packed(const at::Tensor& y) { return y.grad_fn() != nullptr && y.grad_fn()->name().find("PackedLinear") != std::string::npos; }

bool should_pack() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") == 0;
#else
  return false;
#endif
}

double off_from_double(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(at::kDouble) - want).abs().max() / want.abs().max().clamp_min(1e-30)).item<double>();
}

void check_against_double(at::Tensor x, bool with_bias) {
  CAPTURE(x.sizes());
  at::Tensor w = torch::randn({20, x.size(-1)}), b = with_bias ? torch::randn({20}) : at::Tensor();
  const auto wide = [](const at::Tensor& t) { return t.defined() ? t.detach().to(at::kDouble).requires_grad_() : t; };
  const at::Tensor x64 = wide(x), w64 = wide(w), b64 = wide(b);
  x.requires_grad_();
  w.requires_grad_();
  if (with_bias) b.requires_grad_();
  const at::Tensor y = packed_linear(x, w, b), want = at::linear(x64, w64, b64);
  CHECK(is_packed(y) == should_pack());
  REQUIRE(y.sizes().equals(want.sizes()));
  CHECK(off_from_double(y, want) < 2e-6);
  const at::Tensor up = torch::randn(want.sizes());
  y.backward(up);
  want.backward(up.to(at::kDouble));
  CHECK(off_from_double(x.grad(), x64.grad()) < 2e-6);
  CHECK(off_from_double(w.grad(), w64.grad()) < 4e-6);
  if (with_bias) CHECK(off_from_double(b.grad(), b64.grad()) < 4e-6);
}

}  // namespace

TEST_CASE("values and gradients are those of a linear layer in double") {
  torch::manual_seed(1);
  for (const bool with_bias : {false, true}) {
    check_against_double(torch::randn({kMany, 24}), with_bias);
    check_against_double(torch::randn({kMany / 10, 10, 7}), with_bias);
    check_against_double(torch::randn({11, 24, kMany / 11}).transpose(1, 2), with_bias);  // input that is not contiguous
    check_against_double(torch::randn({2, 5, kMany / 10, 33}).select(1, 2).repeat({5, 1, 1}), with_bias);
  }
}

TEST_CASE("few rows, one row and none go to the library") {
  torch::manual_seed(2);
  const at::Tensor w = torch::randn({6, 9}).requires_grad_(), b = torch::randn({6}).requires_grad_();
  for (const auto& x : {torch::randn({100, 9}), torch::randn({9}), torch::randn({0, 9}), torch::randn({3, 0, 9})}) {
    const at::Tensor y = packed_linear(x, w, b);
    CHECK_FALSE(is_packed(y));
    CHECK(y.equal(at::linear(x, w, b)));
  }
  const at::Tensor wide = torch::randn({kMany, 9}).to(at::kDouble);
  CHECK((packed_linear(wide, w.to(at::kDouble), b.to(at::kDouble)).scalar_type() == at::kDouble));
}

TEST_CASE("only the gradients that are required, and a frozen layer has none") {
  torch::manual_seed(3);
  for (int wanted = 0; wanted < 3; ++wanted) {
    const at::Tensor x = torch::randn({kMany, 8}).requires_grad_(wanted == 0), w = torch::randn({5, 8}).requires_grad_(wanted == 1),
                     b = torch::randn({5}).requires_grad_(wanted == 2);
    packed_linear(x, w, b).sum().backward();
    CHECK(x.grad().defined() == (wanted == 0));
    CHECK(w.grad().defined() == (wanted == 1));
    CHECK(b.grad().defined() == (wanted == 2));
  }
  const at::NoGradGuard no_grad;
  CHECK_FALSE(packed_linear(torch::randn({kMany, 8}), torch::randn({5, 8}).requires_grad_()).requires_grad());
}

TEST_CASE("the same bits each time, and of the layer") {
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({kMany, 40});
  const auto layer = std::make_shared<Linear>(40, 30, true, true);
  const at::NoGradGuard no_grad;
  layer->weight.normal_();
  layer->bias.normal_();
  const at::Tensor first = packed_linear(x, layer->weight, layer->bias);
  for (int i = 0; i < 3; ++i) CHECK(layer->forward(x).equal(first));
  layer->weight.mul_(2);  // the next call must not use a copy of the old weights
  layer->bias.mul_(2);
  CHECK(layer->forward(x).equal(first * 2));
}

TEST_CASE("inside an emulating region inputs are rounded and the result once") {
  torch::manual_seed(5);
  at::Tensor x = torch::randn({kMany, 16}), w = torch::randn({12, 16}).requires_grad_(), b = torch::randn({12}).requires_grad_();
  const auto low = [](const at::Tensor& t) { return t.detach().to(at::kBFloat16).to(at::kDouble); };
  const at::Tensor want = at::linear(low(x), low(w), low(b));
  at::Tensor y;
  {
    const Autocast region(Device{}, at::kBFloat16, true, true, CpuLowPrecision::Emulated);
    y = packed_linear(x, w, b);
    CHECK((y.scalar_type() == at::kBFloat16));
    CHECK(is_packed(y) == should_pack());
  }
  CHECK(off_from_double(y, want) < 1.0 / 256);
  const at::Tensor up = torch::randn({kMany, 12}).to(at::kBFloat16);
  y.backward(up);
  CHECK((w.grad().scalar_type() == at::kFloat));
  CHECK(off_from_double(w.grad(), at::mm(low(up).t(), low(x))) < 1.0 / 256);
  CHECK(off_from_double(b.grad(), low(up).sum(0)) < 1.0 / 256);
}

TEST_CASE("what does not fit is refused, and so is a double backward") {
  const at::Tensor x = torch::randn({kMany, 8}), w = torch::randn({5, 8}).requires_grad_();
  CHECK_THROWS_AS(packed_linear(x, torch::randn({5, 7})), Error);
  CHECK_THROWS_AS(packed_linear(x, w, torch::randn({6})), Error);
  CHECK_THROWS_AS(packed_linear({}, w), Error);
  const at::Tensor y = packed_linear(x, w);
  if (should_pack())
    testing::check_no_double_backward(y.square(), w);
  else
    CHECK_NOTHROW(torch::autograd::grad({y.square().sum()}, {w}, {}, true, /*create_graph=*/true));
}

}  // namespace npu_train
