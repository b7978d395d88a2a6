#include "testing.hpp"

#include <ATen/ATen.h>

#include <limits>

#include <c10/core/GradMode.h>

#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/precision/precision.hpp"
#include "precision_case.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("the table of modes") {
  struct Row {
    const char* mode;
    const char* name;
    at::ScalarType dtype;
    bool may_skip;
  };
  for (const Row& row :
       {Row{"32-true", "32-true", at::kFloat, false}, Row{"O0", "32-true", at::kFloat, false},
        Row{"bf16-mixed", "bf16-mixed", at::kBFloat16, false}, Row{"16-mixed", "16-mixed", at::kHalf, true},
        Row{"O1", "16-mixed", at::kHalf, true}, Row{"bf16-true", "bf16-true", at::kBFloat16, false},
        Row{"16-true", "16-true", at::kHalf, true}, Row{"O2", "16-true", at::kHalf, true}, Row{"O3", "O3", at::kHalf, true}}) {
    CAPTURE(row.mode);
    const auto p = make(row.mode);
    CHECK(p->name() == row.name);
    CHECK((p->low_precision_dtype() == row.dtype));
    CHECK(p->may_skip() == row.may_skip);
    CHECK(p->scale() == (row.may_skip ? 65536 : 1));
    CHECK(p->state().empty() == !row.may_skip);
    CHECK((p->forward_scope() != nullptr) == (row.dtype != at::kFloat));
    CHECK_FALSE(p->last_step_skipped());
  }
  for (const auto& mode : precision_modes()) CHECK_NOTHROW(make(mode));
}

TEST_CASE("contradictions and unknown names are refused") {
  for (const char* mode : {"32-true", "bf16-mixed", "bf16-true", "O0", "auto"}) {
    CHECK(error_of([&] { make(mode, {.enabled = "true"}); }).kind() == ErrorKind::Usage);
    CHECK_NOTHROW(make(mode, {.enabled = "false"}));
  }
  CHECK_NOTHROW(make("16-mixed", {.enabled = "true"}));
  CHECK(error_of([&] { make("16-mixed", {.enabled = "maybe"}); }).kind() == ErrorKind::Usage);
  const auto e = error_of([&] { make("bf16-mixd"); });
  CHECK(e.kind() == ErrorKind::Usage);
  CHECK(std::string(e.what()).find("did you mean bf16-mixed?") != std::string::npos);
  CHECK(error_of([&] { make("16-mixed", {.init_scale = 0x1p30}); }).kind() == ErrorKind::Usage);
}

TEST_CASE("fp16 without a scaler never skips") {
  const auto p = make("16-mixed", {.enabled = "false"});
  CHECK_FALSE(p->may_skip());
  CHECK(p->scale() == 1);
  const auto loss = at::ones({});
  CHECK(p->scale_loss(loss).is_same(loss));
}

TEST_CASE("a run says when its dtype is emulated, and warns once where it is slow") {
  std::vector<std::string> said, warned;
  const ScopedLogSink sink([&](LogLevel level, std::string_view text) { (level == LogLevel::Warning ? warned : said).emplace_back(text); });
  const auto with = [](const std::string& cpu) { return make_precision({.mode = "bf16-mixed", .cpu_low_precision = cpu}, kCpu); };
  with("emulated");
  REQUIRE(said.size() == 1);
  CHECK(has(said[0], "bf16 is emulated by fp32 kernels"));
  with("native");
  const auto first = warned.size();
  with("native");
  CHECK(warned.size() == first);  // warned before, here or in an earlier test
  const bool native = backend_of(kCpu).capabilities(kCpu).native_bf16;
  CHECK((native || first <= 1));
  said.clear();
  with("auto");
  CHECK(said.size() == (native ? 0 : 1));
  CHECK(has(error_of([&] { with("quick"); }).what(), "auto, native, emulated"));
}

TEST_CASE("cpu_low_precision decides which kernels a forward runs") {
  const at::Tensor w = at::ones({2, 2}).set_requires_grad(true);
  const auto maker = [&](const std::string& cpu) {
    const auto p = make_precision({.mode = "bf16-mixed", .cpu_low_precision = cpu}, kCpu);
    const auto scope = p->forward_scope();
    return std::string(at::mm(w, w).grad_fn()->name());
  };
  CHECK(has(maker("emulated"), "Product"));
  CHECK(has(maker("native"), "MmBackward"));
}

TEST_CASE("config tables") {
  const auto o =
      bind<PrecisionOptions>(parse_yaml("{mode: 16-mixed, grad_scaler: {enabled: true, init_scale: 128}, fp32_modules: [head]}", "test"));
  CHECK(o.mode == "16-mixed");
  CHECK(o.grad_scaler.enabled == "true");
  CHECK(o.grad_scaler.init_scale == 128);
  CHECK(o.grad_scaler.min_scale == 1);
  CHECK(o.grad_scaler.max_scale == 0x1p24);
  CHECK(o.fp32_modules == std::vector<std::string>{"head"});
  const auto lists =
      bind<PrecisionOptions>(parse_yaml("{low_precision_modules: [a], fp32_ops: [gelu], grad_scaler: {hysteresis: 2}}", "test"));
  CHECK(lists.low_precision_modules == std::vector<std::string>{"a"});
  CHECK(lists.fp32_ops == std::vector<std::string>{"gelu"});
  CHECK(lists.grad_scaler.loss_scale().hysteresis == 2);
  CHECK(error_of([] { bind<PrecisionOptions>(parse_yaml("{mode: fp16}", "test")); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { bind<GradScalerOptions>(parse_yaml("{growth_factor: 1}", "test")); }).kind() == ErrorKind::Usage);
}

TEST_CASE("32-true passes everything through and touches gradients only when it must") {
  const auto p = make("32-true");
  const auto w = random_leaf({3});
  const auto updated = p->prepare(set_of({{"w", w}}));
  CHECK(updated[0].value.is_same(w));
  set_grad(w, at::ones({3}));
  const auto version = w.grad()._version();
  const auto decision = p->unscale_and_check(1);
  CHECK_FALSE(decision.found_inf.defined());
  CHECK_FALSE(decision.inv_scale.defined());
  CHECK(w.grad()._version() == version);
  p->unscale_and_check(0.25);
  CHECK(at::equal(w.grad(), at::full({3}, 0.25)));
  CHECK(error_of([&] { p->prepare(set_of({{"w", w}})); }).kind() == ErrorKind::Usage);
}

TEST_CASE("mixed: the forward computes in the dtype, parameters stay fp32") {
  for (const char* mode : {"bf16-mixed", "16-mixed"}) {
    const auto p = make(mode);
    const auto w = random_leaf({4, 4});
    p->prepare(set_of({{"w", w}}));
    {
      const auto scope = p->forward_scope();
      CHECK((at::matmul(at::rand({2, 4}), w).scalar_type() == p->low_precision_dtype()));
    }
    CHECK((at::matmul(at::rand({2, 4}), w).scalar_type() == at::kFloat));
    CHECK((w.scalar_type() == at::kFloat));
  }
}

TEST_CASE("16-mixed: scale, one fused pass with the window's factor, skip, state machine") {
  const auto p = make("16-mixed", {.init_scale = 1024, .growth_interval = 2});
  const auto w = random_leaf({3});
  p->prepare(set_of({{"w", w}}));
  const auto attempt = [&](float g) {
    set_grad(w, at::full({3}, g));
    const auto decision = p->unscale_and_check(0.5);
    p->after_step(decision);
    const bool skipped = p->last_step_skipped();
    p->update(decision);
    return skipped;
  };
  CHECK(p->scale_loss(at::full({}, 3.0)).item<float>() == 3072);
  CHECK_FALSE(attempt(4096));
  CHECK(at::equal(w.grad(), at::full({3}, 2.0)));
  CHECK(p->scale() == 1024);
  CHECK(attempt(kInf));
  CHECK(p->scale() == 512);
  CHECK(p->skip_streak() == 1);
  CHECK(attempt(std::numeric_limits<float>::quiet_NaN()));
  CHECK(p->scale() == 256);
  CHECK(p->skip_streak() == 2);
  CHECK_FALSE(attempt(1));
  CHECK_FALSE(attempt(1));
  CHECK(p->scale() == 512);
  CHECK(p->skip_streak() == 0);
}

TEST_CASE("what ranks agree on decides, in place or in a tensor of its own") {
  const auto p = make("16-mixed", {.init_scale = 8});
  const auto w = random_leaf({3});
  p->prepare(set_of({{"w", w}}));
  set_grad(w, at::ones({3}));
  auto decision = p->unscale_and_check(1);
  decision.found_inf.fill_(1);
  CHECK(p->last_step_skipped());
  p->update(decision);
  CHECK(p->scale() == 4);
  set_grad(w, at::ones({3}));
  decision = p->unscale_and_check(1);
  decision.found_inf = at::ones({});
  p->after_step(decision);
  CHECK(p->last_step_skipped());
  p->update(decision);
  CHECK(p->scale() == 2);
}

TEST_CASE("the optimizer's decision is what ranks agreed on") {
  const auto p = make("16-mixed", {.init_scale = 8});
  const auto w = random_leaf({3});
  p->prepare(set_of({{"w", w}}));
  set_grad(w, at::ones({3}));
  auto decision = p->unscale_and_check(1);
  CHECK(p->optimizer_decision(decision).found_inf.is_same(decision.found_inf));
  CHECK_FALSE(p->last_step_skipped());
  decision.found_inf = at::ones({});
  CHECK(p->optimizer_decision(decision).found_inf.is_same(decision.found_inf));
  CHECK(p->last_step_skipped());
  CHECK_FALSE(make("32-true")->optimizer_decision({}).found_inf.defined());
}

TEST_CASE("the floor of the Trainer") {
  const auto p = make("16-mixed", {.init_scale = 2});
  const auto w = random_leaf({3});
  p->prepare(set_of({{"w", w}}));
  CHECK_FALSE(p->at_floor());
  for (int i = 0; i < 5; ++i) {
    set_grad(w, at::full({3}, kInf));
    p->update(p->unscale_and_check(1));
  }
  CHECK(p->scale() == 1);
  CHECK(p->at_floor());
  CHECK(p->skip_streak() == 5);
}

TEST_CASE("inputs are cast, targets are not") {
  const auto p = make("bf16-true");
  Batch b(at::randn({2, 3}), at::randn({2, 4}));
  b.set("input.mask", at::ones({2}, at::kBool));
  const auto cast = p->cast_input(b);
  CHECK((cast.input().scalar_type() == at::kBFloat16));
  CHECK((cast.target().scalar_type() == at::kFloat));
  CHECK((cast.at("input.mask").scalar_type() == at::kBool));
  CHECK((b.input().scalar_type() == at::kFloat));
  CHECK((make("bf16-mixed")->cast_input(b).input().scalar_type() == at::kFloat));
}

TEST_CASE("a restored state continues inside a growth interval, and other modes accept or ignore it") {
  const auto run = [](Precision& p, const ParameterSet& set, std::initializer_list<double> gradients) {
    for (const double g : gradients) {
      set_grad(set[0].value, at::full({2}, g));
      p.update(p.unscale_and_check(1));
    }
  };
  const GradScalerOptions options{.init_scale = 64, .growth_interval = 4};
  const auto a = make("16-mixed", options), b = make("16-mixed", options);
  const auto set = a->prepare(set_of({{"w", random_leaf({2})}}));
  b->prepare(set);
  run(*a, set, {1, kInf, 1, 1, 1});
  CHECK(a->scale() == 32);
  b->load_state(a->state());
  run(*b, set, {1});
  CHECK(b->scale() == 64);

  const auto other = make("32-true");
  other->load_state(a->state());
  CHECK(other->scale() == 1);
  b->load_state(other->state());
  CHECK(b->scale() == 64);
  auto broken = a->state();
  broken.values.erase("growth_tracker");
  CHECK(error_of([&] { b->load_state(broken); }).kind() == ErrorKind::Checkpoint);
  CHECK(b->scale() == 64);
}
