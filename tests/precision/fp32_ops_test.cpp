#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>
#include <thread>

#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/fp32_ops.hpp"
#include "npu_train/precision/precision.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;

namespace {

const Device kHere;

Autocast region_with(const std::vector<std::string>& ops, CpuLowPrecision cpu = CpuLowPrecision::Native,
                     at::ScalarType dtype = at::kBFloat16) {
  return Autocast(kHere, dtype, true, true, cpu, Fp32Ops(ops, kHere));
}

at::Tensor low_values(at::ScalarType dtype = at::kBFloat16) { return at::linspace(-3, 3, 24).view({4, 6}).to(dtype); }

at::ScalarType gelu_type() { return at::gelu(low_values()).scalar_type(); }

}  // namespace

TEST_CASE("listed operators take low precision as fp32 and give fp32, others do not") {
  const at::Tensor x = low_values(), wide = x.to(at::kFloat), gain = at::rand({6});
  for (const auto cpu : {CpuLowPrecision::Native, CpuLowPrecision::Emulated}) {
    const auto region = region_with({"softmax", "gelu", "layer_norm"}, cpu);
    CHECK(at::equal(at::softmax(x, -1), at::softmax(wide, -1)));
    CHECK(at::equal(at::gelu(x), at::gelu(wide)));
    CHECK(at::equal(at::gelu(x, "tanh"), at::gelu(wide, "tanh")));
    CHECK(at::equal(at::layer_norm(x, {6}, gain), at::layer_norm(wide, {6}, gain)));
    CHECK((at::silu(x).scalar_type() == at::kBFloat16));
    CHECK((at::log_softmax(x, -1).scalar_type() == at::kBFloat16));
    CHECK((at::linear(x, at::rand({3, 6})).scalar_type() == at::kBFloat16));
  }
  const auto region = region_with({});
  CHECK((at::softmax(x, -1).scalar_type() == at::kBFloat16));
  CHECK((gelu_type() == at::kBFloat16));
}

TEST_CASE("fp16 that would overflow does not") {
  const at::Tensor x = at::full({2}, 20.0, at::kHalf);
  {
    const auto region = region_with({}, CpuLowPrecision::Native, at::kHalf);
    CHECK(std::isinf(at::exp2(x)[0].item<double>()));
  }
  const auto region = region_with({"exp2"}, CpuLowPrecision::Native, at::kHalf);
  CHECK(at::exp2(x)[0].item<double>() == 1048576.0);
}

TEST_CASE("gradients come back in the dtype of the input, computed in fp32") {
  const at::Tensor x = low_values().set_requires_grad(true), exact = x.detach().to(at::kFloat).set_requires_grad(true);
  at::Tensor y;
  {
    const auto region = region_with({"softmax"});
    y = at::softmax(x, -1);
  }
  const at::Tensor dy = at::rand({4, 6});
  const auto got = torch::autograd::grad({y}, {x}, {dy})[0], expected = torch::autograd::grad({at::softmax(exact, -1)}, {exact}, {dy})[0];
  CHECK((got.scalar_type() == at::kBFloat16));
  CHECK(at::equal(got, expected.to(at::kBFloat16)));
}

TEST_CASE("operators that autocast and emulation would make low precision: the list wins") {
  const at::Tensor a = at::rand({4, 4}), x = at::rand({1, 2, 5, 5}), w = at::rand({3, 2, 3, 3});
  for (const auto cpu : {CpuLowPrecision::Native, CpuLowPrecision::Emulated}) {
    const auto region = region_with({"mm", "conv2d", "scaled_dot_product_attention"}, cpu);
    CHECK(at::equal(at::mm(a, a.to(at::kBFloat16)), at::mm(a, a.to(at::kBFloat16).to(at::kFloat))));
    CHECK((at::conv2d(x, w).scalar_type() == at::kFloat));
    CHECK((at::scaled_dot_product_attention(x, x, x).scalar_type() == at::kFloat));
    CHECK((at::bmm(x[0], x[0]).scalar_type() == at::kBFloat16));
  }
  const auto emulated = region_with({}, CpuLowPrecision::Emulated);
  CHECK(has(at::mm(a.clone().set_requires_grad(true), a).grad_fn()->name(), "Product"));
}

TEST_CASE("lists of tensors are cast too, and absent ones are left") {
  const auto region = region_with({"cat", "batch_norm"});
  CHECK((at::cat({low_values(), low_values()}).scalar_type() == at::kFloat));
  CHECK((at::batch_norm(low_values(), {}, {}, {}, {}, true, 0.1, 1e-5, false).scalar_type() == at::kFloat));
}

TEST_CASE("other threads, regions of others, regions without the list and disabled ones see nothing") {
  const auto region = region_with({"gelu"});
  CHECK((gelu_type() == at::kFloat));
  std::thread([] {
    CHECK((gelu_type() == at::kBFloat16));
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    CHECK((gelu_type() == at::kBFloat16));
    CHECK((at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type() == at::kBFloat16));
  }).join();
  {
    const Autocast inner(kHere, at::kBFloat16);
    CHECK((gelu_type() == at::kBFloat16));
    CHECK_FALSE(in_fp32_ops("gelu"));
  }
  {
    const Fp32Region off(kHere);
    CHECK((gelu_type() == at::kBFloat16));
  }
  CHECK((gelu_type() == at::kFloat));
  CHECK(in_fp32_ops("gelu"));
  CHECK_FALSE(in_fp32_ops("softmax"));
}

TEST_CASE("an exception that leaves a region takes the list along") {
  CHECK_THROWS([] {
    const auto region = region_with({"gelu", "mm"});
    at::mm(at::ones({2, 3}), at::ones({2, 3}));
  }());
  CHECK_FALSE(in_fp32_ops("gelu"));
  const Autocast plain(kHere, at::kBFloat16);
  CHECK((gelu_type() == at::kBFloat16));
}

TEST_CASE("a kept state computes the same again, here and on another thread") {
  std::optional<AutocastState> kept;
  {
    const auto region = region_with({"gelu"});
    kept.emplace();
  }
  CHECK((gelu_type() == at::kBFloat16));
  const auto again = [&] {
    const AutocastState::Scope scope(*kept);
    return gelu_type();
  };
  CHECK((again() == at::kFloat));
  CHECK((gelu_type() == at::kBFloat16));
  std::thread([&] {
    CHECK((again() == at::kFloat));
    const Autocast plain(kHere, at::kBFloat16);
    CHECK((gelu_type() == at::kBFloat16));
  }).join();
}

TEST_CASE("a name given twice counts once") {
  const Fp32Ops ops({"gelu", "softmax", "gelu"}, kHere);
  CHECK((ops.names() == std::vector<std::string>{"gelu", "softmax"}));
  {
    const Autocast region(kHere, at::kBFloat16, true, true, CpuLowPrecision::Auto, ops);
    at::gelu(low_values());
    at::softmax(low_values(), -1);
  }
  CHECK((ops.met() == ops.names()));
}

TEST_CASE("what was met is known") {
  const Fp32Ops ops({"gelu", "softmax"}, kHere), copy = ops;
  CHECK(ops.met().empty());
  CHECK((ops.names() == std::vector<std::string>{"gelu", "softmax"}));
  {
    const Autocast region(kHere, at::kBFloat16, true, true, CpuLowPrecision::Auto, copy);
    at::gelu(low_values());
  }
  CHECK((ops.met() == std::vector<std::string>{"gelu"}));
  CHECK(Fp32Ops().met().empty());
  CHECK(Fp32Ops({}, kHere).empty());
}

TEST_CASE("names that are wrong, and operators that cannot be cast") {
  const auto message = [](const std::string& name) {
    const auto e = error_of([&] { Fp32Ops({name}, kHere); });
    CHECK(e.kind() == ErrorKind::Usage);
    return std::string(e.what());
  };
  CHECK(has(message("sofmax"), "did you mean softmax?"));
  CHECK(has(message("LayerNorm"), "did you mean layer_norm?"));
  CHECK(has(message(""), "is no operator"));
  CHECK(has(message("relu_"), "writes into an argument"));
  CHECK(has(message("transpose"), "gives a view"));
  CHECK(has(message("gelu_backward"), "runs in the backward pass"));
  CHECK(has(message("_cudnn_init_dropout_state"), "takes no tensor"));
  for (const char* mode : {"32-true", "bf16-mixed", "16-true"}) {
    PrecisionOptions options;
    options.mode = mode;
    options.fp32_ops = {"sofmax"};
    CHECK(has(error_of([&] { make_precision(options, kHere); }).what(), "did you mean softmax?"));
  }
}

TEST_CASE("the forward of a precision has its operators") {
  for (const char* mode : {"bf16-mixed", "bf16-true"}) {
    PrecisionOptions options;
    options.mode = mode;
    options.fp32_ops = {"gelu"};
    const auto precision = make_precision(options, kHere);
    {
      const auto scope = precision->forward_scope();
      CHECK((gelu_type() == at::kFloat));
    }
    CHECK((gelu_type() == at::kBFloat16));
    CHECK((precision->fp32_ops().met() == std::vector<std::string>{"gelu"}));
  }
}
