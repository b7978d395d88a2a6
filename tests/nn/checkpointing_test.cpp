#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules.h>

#include "live_bytes.hpp"
#include "npu_train/nn/batch_norm_act.hpp"
#include "npu_train/nn/checkpointing.hpp"
#include "npu_train/nn/saved_tensors.hpp"
#include "npu_train/precision/autocast.hpp"
#include "reference/tensor.hpp"

using namespace npu_train;
using npu_train::testing::has;
using npu_train::testing::live_after;
using reference::leaf;
using Tensors = std::vector<at::Tensor>;

namespace {

// A block with everything that must be reproduced: dropout, batch statistics, a weight that is used twice.
struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr}, last{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  int calls = 0;

  Net() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    last = register_module("last", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 1)));
  }
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    const at::Tensor h = at::relu(norm(conv(x)));
    return last(at::dropout(conv(h), 0.5, true));
  }
};

struct Result {
  at::Tensor y, next_random;
  Tensors grads, buffers;
};

template <class Call>
Result run(Net& net, const at::Tensor& x, Call call) {
  at::manual_seed(11);
  for (auto& b : net.buffers()) b.zero_();
  Result r;
  r.y = call(x);
  Tensors leaves = net.parameters();
  if (x.requires_grad()) leaves.push_back(x);
  r.grads = torch::autograd::grad({r.y.sum()}, leaves);
  r.next_random = at::rand({3});
  for (const auto& b : net.buffers()) r.buffers.push_back(b.clone());
  return r;
}

void check_equal(const Result& a, const Result& b) {
  CHECK(at::equal(a.y, b.y));
  CHECK(at::equal(a.next_random, b.next_random));
  REQUIRE(a.grads.size() == b.grads.size());
  for (size_t i = 0; i < a.grads.size(); ++i) CHECK(at::equal(a.grads[i], b.grads[i]));
  for (size_t i = 0; i < a.buffers.size(); ++i) CHECK(at::equal(a.buffers[i], b.buffers[i]));
}

}  // namespace

TEST_CASE("gradients, batch statistics and random numbers are bit-equal to those without") {
  Net net;
  for (const bool wanted : {true, false}) {
    const at::Tensor x = leaf({3, 4, 8, 8}, 1, at::kFloat).detach().requires_grad_(wanted);
    const auto plain = run(net, x, [&](const at::Tensor& t) { return net.forward(t); });
    net.calls = 0;
    const auto fn = [&](const at::Tensor& t) { return net.forward(t); };
    check_equal(run(net, x, [&](const at::Tensor& t) { return checkpoint(fn, t); }), plain);
    CHECK(net.calls == 2);
    check_equal(run(net, x, [&](const at::Tensor& t) { return checkpoint(fn, t, {.buffers = net.buffers()}); }), plain);
  }
}

TEST_CASE("pieces nest, to any depth") {
  Net net;
  const at::Tensor x = leaf({3, 4, 8, 8}, 2, at::kFloat);
  const auto twice = [&](const at::Tensor& t) { return net.forward(at::sin(net.forward(t))); };
  const auto plain = run(net, x, twice);
  const auto part = [&](const at::Tensor& t) { return net.forward(t); };
  const auto whole = [&](const at::Tensor& t) { return checkpoint(part, at::sin(checkpoint(part, t))); };
  check_equal(run(net, x, [&](const at::Tensor& t) { return checkpoint(whole, t); }), plain);
}

TEST_CASE("an integer that the function adds to is no counter of a layer") {
  const at::Tensor x = leaf({3, 4}, 24, at::kFloat);
  const auto fn = [](const at::Tensor& t) {
    at::Tensor n = t.detach().gt(-100).sum();
    n += 1;
    return at::sin(t) / n;
  };
  const at::Tensor plain = torch::autograd::grad({fn(x).sum()}, {x})[0];
  CHECK(at::equal(torch::autograd::grad({checkpoint(fn, x).sum()}, {x})[0], plain));
}

TEST_CASE("running statistics move once, whichever operator moves them; what is named in buffers too") {
  const at::Tensor x = leaf({3, 4, 8, 8}, 21, at::kFloat), scale = leaf({4}, 22, at::kFloat), shift = leaf({4}, 23, at::kFloat);
  const auto running = [] { return std::array{at::zeros({4}), at::ones({4})}; };
  const auto of_batch = running(), of_instance = running(), of_ours = running();
  const at::Tensor count = at::zeros({}, at::kLong), own = at::zeros({2});
  const auto fn = [&](const at::Tensor& t) {
    count.add_(1);
    own.add_(1);
    at::Tensor y = at::batch_norm(t, scale, shift, of_batch[0], of_batch[1], true, 0.1, 1e-5, true);
    y = at::instance_norm(at::sin(y), scale, shift, of_instance[0], of_instance[1], true, 0.1, 1e-5, true);
    BatchNormArgs bn;
    bn.weight = scale;
    bn.bias = shift;
    bn.running_mean = of_ours[0];
    bn.running_var = of_ours[1];
    bn.training = true;
    return at::sin(batch_norm_act(at::sin(y), bn));
  };
  const auto moved = [&](const auto& call) {
    Tensors all = {count, own};
    for (const auto& r : {of_batch, of_instance, of_ours}) all.insert(all.end(), r.begin(), r.end());
    for (auto& t : all) t.zero_();
    call(x).sum().backward();
    for (auto& t : all) t = t.clone();
    return all;
  };
  const auto plain = moved(fn);
  CHECK(plain[0].item<int64_t>() == 1);
  const auto once = moved([&](const at::Tensor& t) { return checkpoint(fn, t, {.buffers = {own}}); });
  for (size_t i = 0; i < plain.size(); ++i) {
    CAPTURE(i);
    CHECK(at::equal(once[i], plain[i]));
  }
}

TEST_CASE("the autocast of the forward holds in the recomputation, also the emulated one") {
  Net net;
  const at::Tensor x = leaf({3, 4, 8, 8}, 3, at::kFloat);
  for (const auto cpu : {CpuLowPrecision::Native, CpuLowPrecision::Emulated}) {
    const auto under = [&](auto fn) {
      return run(net, x, [&](const at::Tensor& t) {
        const Autocast autocast(Device{}, at::kBFloat16, true, true, cpu);
        return fn(t);
      });
    };
    const auto plain = under([&](const at::Tensor& t) { return net.forward(t); });
    REQUIRE((plain.y.scalar_type() == at::kBFloat16));
    check_equal(under([&](const at::Tensor& t) { return checkpoint([&](const at::Tensor& in) { return net.forward(in); }, t); }), plain);
    CHECK_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
}

TEST_CASE("several inputs and outputs, with and without gradient, and an undefined one") {
  const at::Tensor a = leaf({4}, 4, at::kFloat), b = leaf({4}, 5, at::kFloat).detach(), w = leaf({4}, 6, at::kFloat);
  const auto fn = [&](const Tensors& in) -> Tensors {
    CHECK_FALSE(in[2].defined());
    return {in[0] * in[1] * w, at::exp(in[0]), in[1] * 2};
  };
  const auto loss = [](const Tensors& y) { return (y[0] * y[1] + y[2]).sum(); };
  const auto out = checkpoint(fn, {a, b, at::Tensor()});
  CHECK(out[1].requires_grad());
  CHECK_FALSE(out[2].requires_grad());
  const auto got = torch::autograd::grad({loss(out)}, {a, w}), expected = torch::autograd::grad({loss(fn({a, b, {}}))}, {a, w});
  CHECK(at::equal(got[0], expected[0]));
  CHECK(at::equal(got[1], expected[1]));
}

TEST_CASE("a tensor captured with its history gets its gradient") {
  const at::Tensor x = leaf({4}, 7, at::kFloat), c = leaf({4}, 8, at::kFloat);
  const at::Tensor captured = at::sin(c);
  const at::Tensor y = checkpoint([&](const at::Tensor& t) { return at::exp(t * captured) * captured; }, x);
  const auto got = torch::autograd::grad({y.sum()}, {x, c}, {}, true);
  const auto expected = torch::autograd::grad({(at::exp(x * captured) * captured).sum()}, {x, c});
  CHECK(at::equal(got[0], expected[0]));
  CHECK(at::equal(got[1], expected[1]));
}

TEST_CASE("a kept graph runs again, and hooks on parameters fire once") {
  const at::Tensor x = leaf({4}, 9, at::kFloat), w = leaf({4}, 10, at::kFloat);
  int fired = 0;
  w.register_hook([&](const at::Tensor& g) {
    ++fired;
    return g * 2;
  });
  const at::Tensor y = checkpoint([&](const at::Tensor& t) { return at::sin(t * w) * w; }, x).sum();
  y.backward({}, /*retain_graph=*/true);
  CHECK(fired == 1);
  const at::Tensor once = w.grad().clone();
  y.backward();
  CHECK(fired == 2);
  CHECK(at::equal(w.grad(), once * 2));
}

TEST_CASE("between forward and backward only inputs are kept, in nested pieces too") {
  constexpr int64_t kBytes = 1 << 20;
  const at::Tensor x = leaf({kBytes / 4}, 11, at::kFloat);
  const auto chain = [](const at::Tensor& t) {
    at::Tensor y = t;
    for (int i = 0; i < 10; ++i) y = at::sin(y);
    return y;
  };
  const int64_t small = 64 << 10;  // room for the generator's state and for graph nodes
  CHECK(live_after([&] { return chain(x); }) > 9 * kBytes);
  CHECK(live_after([&] { return checkpoint(chain, x); }) < kBytes + small);
  const auto nested = [&](const at::Tensor& t) { return checkpoint(chain, checkpoint(chain, checkpoint(chain, t))); };
  CHECK(live_after([&] { return nested(x); }) < 3 * kBytes + 3 * small);
  CHECK(live_after([&] { return checkpoint(nested, x); }) < kBytes + 4 * small);
}

TEST_CASE("nothing is left after the backward pass") {
  const at::Tensor x = leaf({64, 64}, 15, at::kFloat);
  BatchNormArgs bn;
  bn.weight = bn.bias = leaf({64}, 16, at::kFloat);
  const std::function<at::Tensor(const at::Tensor&)> exp_keeps_its_result = [](const at::Tensor& t) { return at::gelu(at::exp(t)); };
  const auto function_keeps_its_result = [&](const at::Tensor& t) { return batch_norm_act(t, bn, t); };
  for (const auto& fn : {exp_keeps_its_result, std::function<at::Tensor(const at::Tensor&)>(function_keeps_its_result)}) {
    checkpoint(fn, x).sum().backward();
    const LiveBytes live;
    checkpoint(fn, x).sum().backward();
    CHECK(live.now() == 0);
  }
}

TEST_CASE("the recomputation stops when it has all required tensors") {
  const at::Tensor x = leaf({4}, 12, at::kFloat);
  int ends = 0;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& t) {
        const at::Tensor h = at::sin(t);
        ++ends;  // not repeated, because nothing after the sine is saved
        return h + 1;
      },
      x);
  y.sum().backward();
  CHECK(ends == 1);
}

TEST_CASE("kernels of this library may be the last thing that is recomputed, and a function may catch everything") {
  const at::Tensor x = leaf({2, 3, 4, 4}, 15, at::kFloat), weight = leaf({3}, 16, at::kFloat), bias = leaf({3}, 17, at::kFloat);
  BatchNormArgs bn;
  bn.weight = weight;
  bn.bias = bias;
  const auto fused = [&](const at::Tensor& t) { return batch_norm_act(t, bn); };
  const auto expected = torch::autograd::grad({fused(x).square().sum()}, {x, weight});
  const auto got = torch::autograd::grad({checkpoint(fused, x).square().sum()}, {x, weight});
  CHECK(at::equal(got[0], expected[0]));
  CHECK(at::equal(got[1], expected[1]));
  const auto careful = [](const at::Tensor& t) {
    at::Tensor y = at::sin(t);
    try {
      y = at::sin(y);
    } catch (...) {
    }
    return at::sin(y);
  };
  const at::Tensor plain = torch::autograd::grad({careful(x).sum()}, {x})[0];
  CHECK(at::equal(torch::autograd::grad({checkpoint(careful, x).sum()}, {x})[0], plain));
}

TEST_CASE("without gradients it is the function itself") {
  const at::NoGradGuard off;
  int calls = 0;
  const at::Tensor x = leaf({4}, 13, at::kFloat);
  const at::Tensor y = checkpoint([&](const at::Tensor& t) { return ++calls, at::sin(t); }, x);
  CHECK(calls == 1);
  CHECK_FALSE(y.requires_grad());
}

TEST_CASE("a function that computes something else the second time is named as the cause") {
  const at::Tensor x = leaf({4}, 14, at::kFloat);
  int call = 0;
  const auto message = [&](auto fn) {
    call = 0;
    const at::Tensor y = checkpoint(fn, x).sum();
    return npu_train::testing::error_of([&] { y.backward(); });
  };
  const auto shape = message([&](const at::Tensor& t) { return ++call == 1 ? at::sin(t) : at::sin(t.narrow(0, 0, 2)); });
  CHECK((shape.kind() == ErrorKind::Usage));
  CHECK(has(shape.what(), "it must compute the same each time"));
  CHECK(has(message([&](const at::Tensor& t) { return ++call == 1 ? at::sin(at::sin(t)) : at::sin(t); }).what(), "its first call saved 2"));
}
