#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>
#include <tuple>
#include <vector>

#include "double_backward.hpp"
#include "npu_train/device/portable_random.hpp"
#include "npu_train/nn/attention.hpp"
#include "npu_train/precision/autocast.hpp"

using namespace npu_train;

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

TEST_CASE("bf16 on a CPU: the gradients of few keys are computed in fp32 and rounded once") {
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

TEST_CASE("bf16 on a CPU: autocast casts what it is given, in an emulating region too") {
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

TEST_CASE("bf16 on a CPU: a region of another type casts it") {
  const at::Tensor q = at::randn({2, 2, 9, 8}).to(at::kBFloat16).requires_grad_();
  const Autocast region(Device{}, at::kHalf, true, true, CpuLowPrecision::Native);
  CHECK((attention(q, q, q).scalar_type() == at::kHalf));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK((attention(q, q, q).scalar_type() == at::kBFloat16));
}

TEST_CASE("bf16 on a CPU: gradients of one input alone, none without, and no double backward") {
  const auto make = [] { return at::randn({2, 2, 9, 8}, at::kBFloat16); };
  at::Tensor q = make(), k = make().requires_grad_(), v = make();
  attention(q, k, v).sum().backward();
  CHECK(k.grad().defined());
  CHECK_FALSE(q.grad().defined());
  CHECK_FALSE(attention(q, v, v).requires_grad());
  testing::check_no_double_backward(attention(q, k, v), k);
}
