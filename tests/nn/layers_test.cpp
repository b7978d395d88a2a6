#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/ones.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>
#include <sstream>
#include <tuple>
#include <vector>

#include "double_backward.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/precision/autocast.hpp"

using namespace npu_train;

using npu_train::testing::error_of;

TEST_CASE("shapes, names and text") {
  Conv2d conv({.in = 3, .out = 8, .kernel = 3, .stride = 2, .padding = 1, .bias = true});
  init::ones_(conv.weight);
  init::zeros_(conv.bias);
  CHECK(parameters_of(conv).find("weight")->value.sizes() == at::IntArrayRef({8, 3, 3, 3}));
  const at::Tensor y = conv.forward(at::ones({2, 3, 5, 5}));
  CHECK(y.sizes() == at::IntArrayRef({2, 8, 3, 3}));
  CHECK(y[0][0][1][1].item<float>() == 27);
  CHECK(y[0][0][0][0].item<float>() == 12);

  Linear linear(4, 2);
  init::ones_(linear.weight);
  init::ones_(linear.bias);
  CHECK(linear.forward(at::ones({3, 5, 4})).sizes() == at::IntArrayRef({3, 5, 2}));
  CHECK(linear.forward(at::ones({1, 4})).sum().item<float>() == 10);
  CHECK(parameters_of(Linear(4, 2, false)).size() == 1);

  std::ostringstream text;
  conv.pretty_print(text);
  linear.pretty_print(text);
  CHECK(text.str() == "Conv2d(3, 8, kernel=3, stride=2, padding=1)Linear(4, 2)");
}

TEST_CASE("members follow the module to another dtype") {
  Conv2d conv({.in = 3, .out = 4});
  conv.to(at::kDouble);
  CHECK((conv.weight.scalar_type() == at::kDouble));
  CHECK((conv.forward(at::ones({1, 3, 2, 2}, at::kDouble)).scalar_type() == at::kDouble));
}

TEST_CASE("impossible sizes are refused") {
  CHECK(testing::error_of([] { Conv2d({.in = 0, .out = 4}); }).kind() == ErrorKind::Usage);
  CHECK(testing::error_of([] { Conv2d({.in = 1, .out = 4, .padding = -1}); }).kind() == ErrorKind::Usage);
  CHECK(testing::error_of([] { Linear(3, 0); }).kind() == ErrorKind::Usage);
}

TEST_CASE("attention by its parts equals the fused kernel, dropout apart") {
  const at::Tensor q = at::randn({2, 3, 7, 8}), k = at::randn({2, 3, 7, 8}), v = at::randn({2, 3, 7, 8}), mask = at::randn({7, 7});
  const at::Tensor keep = at::ones({7, 7}, at::kBool).tril();
  const auto near = [](const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-4, 1e-5); };
  const double tiny = 1e-12;  // drops nothing, but selects the separate operators
  const PortableRandom random(1);
  CHECK(near(attention(q, k, v, std::nullopt, tiny), attention(q, k, v)));
  CHECK(near(attention(q, k, v, mask, tiny), attention(q, k, v, mask)));
  CHECK(near(attention(q, k, v, keep, tiny), attention(q, k, v, std::nullopt, 0, true)));
  CHECK(near(attention(q, k, v, std::nullopt, tiny, true), attention(q, k, v, keep)));
}

namespace {

// Returns the output, and the gradients of q, k and v for `dy`, in double.
std::vector<at::Tensor> passed(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& fn, std::vector<at::Tensor> in,
                               const at::Tensor& dy) {
  for (auto& t : in) t = t.detach().clone().requires_grad_();
  const at::Tensor y = fn(in);
  std::vector<at::Tensor> out = {y.to(at::kDouble)};
  for (const auto& g : torch::autograd::grad({y}, in, {dy.to(y.scalar_type())})) out.push_back(g.to(at::kDouble));
  return out;
}

double distance(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

}  // namespace

TEST_CASE("attention in bf16 on a CPU: the gradients of few keys are computed in fp32 and rounded once") {
  at::manual_seed(4);
  for (const auto& [queries, keys, head, causal] : std::vector<std::tuple<int64_t, int64_t, int64_t, bool>>{
           {65, 65, 64, false}, {65, 65, 64, true}, {1, 7, 8, false}, {40, 256, 33, false}, {13, 300, 16, false}}) {
    CAPTURE(keys);
    CAPTURE(causal);
    std::vector<at::Tensor> in, wide;
    for (const int64_t length : {queries, keys, keys})  // in a network's layout: heads next to each other
      in.push_back(at::randn({3, length, 2, head}).transpose(1, 2).to(at::kBFloat16));
    for (const auto& t : in) wide.push_back(t.to(at::kDouble));
    const at::Tensor dy = at::randn({3, queries, 2, head}).transpose(1, 2).to(at::kBFloat16);
    const auto ours = [causal = causal](const std::vector<at::Tensor>& x) { return attention(x[0], x[1], x[2], std::nullopt, 0, causal); };
    const auto libs = [causal = causal](const std::vector<at::Tensor>& x) {
      return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, causal);
    };
    const auto plain = [causal = causal](const std::vector<at::Tensor>& x) {
      return attention(x[0], x[1], x[2], std::nullopt, 0, causal, /*fused_kernels=*/false);
    };
    const auto exact = passed(libs, wide, dy), got = passed(ours, in, dy), library = passed(libs, in, dy);
    CHECK(at::equal(got[0], library[0]));
    for (size_t i = 1; i < 4; ++i) {
      CHECK(distance(got[i], exact[i]) < 0.005);
      if (queries > 1) CHECK(distance(got[i], exact[i]) <= 1.02 * distance(library[i], exact[i]));
      if (keys > 256) CHECK(at::equal(got[i], library[i]));
      CHECK(at::equal(passed(plain, in, dy)[i], library[i]));
    }
    const auto expanded = [](const at::Tensor& y) { return at::ones({}, y.options()).expand(y.sizes()); };
    CHECK(distance(passed(ours, in, expanded(dy))[3], passed(libs, wide, expanded(dy))[3]) < 0.005);
  }
}

TEST_CASE("attention in bf16 on a CPU: autocast casts what it is given, in an emulating region too") {
  at::manual_seed(5);
  for (const auto form : {CpuLowPrecision::Native, CpuLowPrecision::Emulated}) {
    std::vector<at::Tensor> in;
    for (int i = 0; i < 3; ++i) in.push_back(at::randn({2, 2, 9, 8}));
    const at::Tensor dy = at::randn({2, 2, 9, 8});
    const auto cast = [&](const std::vector<at::Tensor>& x) {
      const Autocast region(Device{}, at::kBFloat16, true, true, form);
      const at::Tensor y = attention(x[0], x[1], x[2]);
      CHECK((y.scalar_type() == at::kBFloat16));
      return y;
    };
    const auto got = passed(cast, in, dy);
    const auto exact = passed([](const auto& x) { return attention(x[0], x[1], x[2]); }, in, dy);
    for (size_t i = 0; i < 4; ++i) CHECK(distance(got[i], exact[i]) < 0.02);
  }
}

TEST_CASE("attention in bf16 on a CPU: a region of another type casts it") {
  const at::Tensor q = at::randn({2, 2, 9, 8}).to(at::kBFloat16).requires_grad_();
  const Autocast region(Device{}, at::kHalf, true, true, CpuLowPrecision::Native);
  CHECK((attention(q, q, q).scalar_type() == at::kHalf));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK((attention(q, q, q).scalar_type() == at::kBFloat16));
}

TEST_CASE("attention in bf16 on a CPU: gradients of one input alone, none without, and no double backward") {
  const auto make = [] { return at::randn({2, 2, 9, 8}, at::kBFloat16); };
  at::Tensor q = make(), k = make().requires_grad_(), v = make();
  attention(q, k, v).sum().backward();
  CHECK(k.grad().defined());
  CHECK_FALSE(q.grad().defined());
  CHECK_FALSE(attention(q, v, v).requires_grad());
  testing::check_no_double_backward(attention(q, k, v), k);
}

TEST_CASE("dropout: values are dropped with their probability and the rest is scaled up, from either source") {
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

TEST_CASE("dropout: portable masks do not touch the device's generator") {
  at::manual_seed(1);
  const at::Tensor next = at::rand({3});
  at::manual_seed(1);
  const PortableRandom random(3);
  npu_train::dropout(at::ones({10}), 0.5, true);
  CHECK(at::equal(at::rand({3}), next));
}
