// Parameters in low precision: bf16-true, 16-true, O3.
#include "testing.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "npu_train/precision/precision.hpp"
#include "precision_case.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("true: parameters are cast in place, masters are the fp32 values, norms and fp32_modules stay") {
  for (const char* mode : {"bf16-true", "16-true"}) {
    CAPTURE(mode);
    const auto p = make_precision({.mode = mode, .grad_scaler = {}, .fp32_modules = {"head"}}, kCpu);
    const auto conv = at::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
    const auto norm = random_leaf({4}), head = random_leaf({4, 2}), frozen = at::randn({4});
    const auto start = conv.detach().clone();
    const auto updated = p->prepare(set_of({{"conv", conv}, {"norm", norm}, {"head.weight", head}, {"frozen", frozen}}), {"norm"});
    REQUIRE(updated.size() == 4);
    CHECK((conv.scalar_type() == p->low_precision_dtype()));
    CHECK(conv.requires_grad());
    CHECK(conv.is_leaf());
    CHECK(conv.is_contiguous(at::MemoryFormat::ChannelsLast));
    CHECK(at::equal(conv, start.to(conv.scalar_type())));
    CHECK(updated[0].name == "conv");
    CHECK(at::equal(updated[0].value, start));
    CHECK((updated[0].value.scalar_type() == at::kFloat));
    CHECK(updated[0].value.is_contiguous(at::MemoryFormat::ChannelsLast));
    CHECK(updated[0].value.is_leaf());
    CHECK(updated[1].value.is_same(norm));
    CHECK((norm.scalar_type() == at::kFloat));
    CHECK(updated[2].value.is_same(head));
    CHECK(updated[3].value.is_same(frozen));
    CHECK((frozen.scalar_type() == p->low_precision_dtype()));
  }
  CHECK(error_of([&] { make("16-true")->prepare(set_of({{"w", random_leaf({2}).detach().to(at::kDouble)}})); }).kind() == ErrorKind::Usage);
}

TEST_CASE("true: gradients over micro-batches are summed in fp32 and dropped from the parameters") {
  const auto p = make("16-true", {.init_scale = 2});
  const auto w = random_leaf({1}), norm = random_leaf({1}), unused = random_leaf({1});
  const auto updated = p->prepare(set_of({{"w", w}, {"norm", norm}, {"unused", unused}}), {"norm"});
  for (const float g : {2048.f, 1.f, 1.f}) {
    set_grad(w, at::full({1}, g, at::kHalf));
    set_grad(norm, at::full({1}, g));
    p->collect_gradients();
    CHECK_FALSE(w.grad().defined());
  }
  CHECK(updated[0].value.grad().item<float>() == 2050);  // fp16 would give 2048
  CHECK(updated[1].value.grad().item<float>() == 1);     // autograd adds up the gradient of a kept parameter
  CHECK_FALSE(updated[2].value.grad().defined());
  p->unscale_and_check(1);
  CHECK(updated[0].value.grad().item<float>() == 1025);
}

TEST_CASE("true: training equals an fp32 master reference to fp32 rounding") {
  for (const char* mode : {"16-true", "bf16-true"}) {
    CAPTURE(mode);
    at::manual_seed(5);
    const auto w = random_leaf({6, 3});
    auto reference = w.detach().clone();
    const auto x = at::randn({8, 6}), y = at::randn({8, 3});
    const auto p = make(mode, {.init_scale = 16});
    const auto updated = p->prepare(set_of({{"w", w}}));
    const auto dtype = p->low_precision_dtype();
    for (int step = 0; step < 20; ++step) {
      {
        const auto scope = p->forward_scope();
        const auto out = at::matmul(p->cast_input(Batch(x, y)).input(), w);
        p->scale_loss((out.to(at::kFloat) - y).square().mean()).backward();
      }
      p->collect_gradients();
      const auto decision = p->unscale_and_check(1);
      const c10::NoGradGuard no_grad;
      updated[0].value.sub_(updated[0].value.grad() * 0.05);
      updated[0].value.mutable_grad().reset();
      p->after_step(decision);
      p->update(decision);

      const double scale = decision.found_inf.defined() ? 16 : 1;
      const auto low = reference.to(dtype);
      const auto out = at::matmul(x.to(dtype), low).to(at::kFloat);
      const auto upstream = ((out - y) * (2.0 / 24) * scale).to(dtype);
      reference.sub_(at::matmul(x.to(dtype).t(), upstream).to(at::kFloat) / scale * 0.05);
      CHECK(at::allclose(updated[0].value, reference, 0, 1e-6));
      CHECK(at::equal(w, updated[0].value.to(dtype)));
    }
  }
}

TEST_CASE("updates too small for the dtype survive in masters, and are lost without") {
  for (const char* mode : {"O2", "O3"}) {
    const auto p = make(mode);
    const auto w = at::ones({4}).set_requires_grad(true);
    const auto updated = p->prepare(set_of({{"w", w}}));
    const c10::NoGradGuard no_grad;
    for (int i = 0; i < 20; ++i) {
      updated[0].value.sub_(1e-4);
      p->after_step({});
    }
    const bool masters = std::string(mode) == "O2";
    CHECK((updated[0].value.scalar_type() == (masters ? at::kFloat : at::kHalf)));
    CHECK((w.scalar_type() == at::kHalf));
    CHECK(w[0].item<float>() == doctest::Approx(masters ? 0.998 : 1.0).epsilon(1e-4));
  }
}

TEST_CASE("true: a skipped step leaves parameters and masters bit-identical") {
  const auto p = make("16-true", {.init_scale = 4});
  const auto w = random_leaf({5});
  const auto updated = p->prepare(set_of({{"w", w}}));
  const auto low = w.detach().clone(), master = updated[0].value.detach().clone();
  set_grad(w, at::full({5}, kInf, at::kHalf));
  p->collect_gradients();
  const auto decision = p->unscale_and_check(1);
  CHECK(decision.found_inf.item<float>() == 1);
  p->after_step(decision);
  CHECK(p->last_step_skipped());
  p->update(decision);
  CHECK(at::equal(w, low));
  CHECK(at::equal(updated[0].value, master));
  CHECK(p->scale() == 2);
}

TEST_CASE("true: loading either side brings the other along") {
  const auto p = make("bf16-true");
  const auto w = random_leaf({3});
  const auto updated = p->prepare(set_of({{"w", w}}));
  const c10::NoGradGuard no_grad;
  updated[0].value.fill_(1.001);
  p->masters_loaded();
  CHECK(w[0].item<float>() == 1.f);
  CHECK(updated[0].value[0].item<float>() == 1.001f);
  w.fill_(2);
  p->parameters_loaded();
  CHECK(updated[0].value[0].item<float>() == 2);
}

TEST_CASE("true: normalisation layers with fp32 parameters work inside the forward") {
  for (const char* mode : {"bf16-true", "16-true"}) {
    CAPTURE(mode);
    const auto p = make(mode);
    const auto conv = random_leaf({4, 3, 3, 3}), scale = random_leaf({4}), shift = random_leaf({4}), fc = random_leaf({4, 2});
    auto mean = at::zeros({4}), var = at::ones({4});
    p->prepare(set_of({{"conv", conv}, {"scale", scale}, {"shift", shift}, {"fc", fc}}), {"scale", "shift"});
    at::Tensor loss;
    {
      const auto scope = p->forward_scope();
      const auto x = p->cast_input(Batch(at::randn({2, 3, 8, 8}), at::zeros({2}, at::kLong))).input();
      CHECK((x.scalar_type() == p->low_precision_dtype()));
      const auto h =
          at::batch_norm(at::conv2d(x, conv), scale, shift, mean, var, true, 0.1, 1e-5, true).relu().mean(std::vector<int64_t>{2, 3});
      loss = at::matmul(at::layer_norm(h, {4}, scale, shift), fc).to(at::kFloat).square().mean();
    }
    loss.backward();
    CHECK(at::isfinite(loss).item<bool>());
    CHECK((conv.grad().scalar_type() == p->low_precision_dtype()));
    CHECK((scale.grad().scalar_type() == at::kFloat));
    CHECK(mean.abs().sum().item<float>() > 0);
  }
}

TEST_CASE("true: low_precision_modules are cast inside fp32_modules, and a normalisation layer by its own name") {
  PrecisionOptions options;
  options.mode = "bf16-true";
  options.fp32_modules = {"block"};
  options.low_precision_modules = {"block.1", "norm2", "outer"};
  const auto p = make_precision(options, kCpu);
  const auto set = set_of({{"block.0.weight", random_leaf({2})},
                           {"block.1.weight", random_leaf({2})},
                           {"block.1.norm.weight", random_leaf({2})},
                           {"norm1.weight", random_leaf({2})},
                           {"norm2.weight", random_leaf({2})},
                           {"outer.norm.weight", random_leaf({2})}});
  p->prepare(set, {"block.1.norm.weight", "norm1.weight", "norm2.weight", "outer.norm.weight"});
  const at::ScalarType expected[] = {at::kFloat, at::kBFloat16, at::kFloat, at::kFloat, at::kBFloat16, at::kFloat};
  for (size_t i = 0; i < set.size(); ++i) {
    CAPTURE(set[i].name);
    CHECK((set[i].value.scalar_type() == expected[i]));
  }
}
