#include "testing.hpp"

#include <c10/core/GradMode.h>

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "npu_train/precision/grad_scaler.hpp"
#include "scale_table.hpp"

using namespace npu_train;
using npu_train::testing::check_scale_table;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::kInf;

namespace {

// Computes p -= lr * g, takes a decision, and records how it was called.
class Plain final : public SkippableStep {
 public:
  explicit Plain(std::vector<at::Tensor> tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) set_.add({.name = "p" + std::to_string(i), .value = tensors[i]});
  }
  void step(const StepDecision& decision) override {
    ++steps;
    CHECK_FALSE(decision.inv_scale.defined());  // the gradients are unscaled already, so the decision must not do it again
    const c10::NoGradGuard no_grad;
    for (const auto& p : set_)
      if (p.value.grad().defined()) p.value.sub_(p.value.grad(), 0.1);
  }
  const ParameterSet& parameters() const override { return set_; }
  int steps = 0;

 private:
  ParameterSet set_;
};

at::Tensor leaf() { return at::ones({3}).set_requires_grad(true); }

void backward(const GradScaler& scaler, const at::Tensor& p, double slope = 2) { scaler.scale((p * slope).sum()).backward(); }

}  // namespace

TEST_CASE("the loss is scaled in the graph") {
  const GradScaler scaler;
  auto p = leaf();
  const auto loss = (p * 2).sum();
  const auto scaled = scaler.scale(loss);
  CHECK(scaled.item<float>() == 6 * 65536.f);
  scaled.backward();
  CHECK(at::equal(p.grad(), at::full({3}, 2 * 65536.0)));
}

TEST_CASE("an fp16 scalar loss is scaled in fp32, other tensors keep their dtype") {
  const GradScaler scaler({.init_scale = 1024});
  CHECK((scaler.scale(at::scalar_tensor(100.f).to(at::kHalf)).scalar_type() == at::kFloat));
  CHECK(scaler.scale(at::scalar_tensor(100.f).to(at::kHalf)).item<float>() == 102400);
  CHECK((scaler.scale(at::ones({2}, at::kHalf)).scalar_type() == at::kHalf));
  CHECK((scaler.scale(at::ones({}, at::kDouble)).scalar_type() == at::kDouble));
}

TEST_CASE_TEMPLATE("a step is taken, or skipped on overflow and counted", T, Plain, torch::optim::SGD) {
  auto p = leaf();
  auto make = [&]() -> T {
    if constexpr (std::is_same_v<T, Plain>)
      return Plain({p});
    else
      return torch::optim::SGD({p}, 0.1);
  };
  auto optimizer = make();
  GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
  const auto zero = [&] { p.mutable_grad().reset(); };

  backward(scaler, p);
  CHECK(scaler.step(optimizer));
  scaler.update();
  CHECK(at::allclose(p, at::full({3}, 0.8)));
  CHECK(scaler.get_scale() == 1024);

  zero();
  backward(scaler, p, kInf);
  const auto before = p.detach().clone();
  CHECK_FALSE(scaler.step(optimizer));
  scaler.update();
  CHECK(at::equal(p, before));
  CHECK(scaler.get_scale() == 512);
  CHECK(scaler.loss_scale().skip_streak() == 1);

  for (int i = 0; i < 2; ++i) {
    zero();
    backward(scaler, p);
    CHECK(scaler.step(optimizer));
    scaler.update();
  }
  CHECK(scaler.get_scale() == 1024);
  CHECK(at::allclose(p, at::full({3}, 0.4)));
}

TEST_CASE("the table, by the finite check") {
  check_scale_table([](const LossScaleOptions& options) { return npu_train::testing::ScalerUnderTest(options, Device{}); });
  check_scale_table([](const LossScaleOptions& options) { return npu_train::testing::PrecisionUnderTest(options, Device{}); });
}

TEST_CASE("the table, by what another rank found") {
  for (const auto& c : npu_train::testing::scale_table()) {
    CAPTURE(std::string(c.name));
    size_t at = 0;
    const auto agree = [&](at::Tensor& found) {
      CHECK(found.item<float>() == 0);  // the gradients of this rank are finite
      if (c.rows[at++].overflow) found.fill_(1);
    };
    npu_train::testing::ScalerUnderTest subject(c.options, Device{}, agree, /*another_overflows=*/true);
    for (const auto& row : c.rows) {
      CHECK(subject.attempt(row.overflow) == !row.overflow);
      CHECK(subject.scale() == row.scale);
      CHECK(subject.tracker() == row.tracker);
      CHECK(subject.streak() == row.streak);
    }
    CHECK(at == c.rows.size());
  }
}

TEST_CASE("ranks that all overflow, and agree, back off once") {
  check_scale_table([](const LossScaleOptions& options) {
    return npu_train::testing::ScalerUnderTest(options, Device{}, [](at::Tensor& found) { found.clamp_(0, 1); });
  });
}

TEST_CASE("unscaled gradients can be looked at and changed before the step") {
  auto p = leaf();
  Plain optimizer({p});
  GradScaler scaler;
  backward(scaler, p);
  scaler.unscale_(optimizer);
  CHECK(at::equal(p.grad(), at::full({3}, 2.0)));
  p.mutable_grad().mul_(0.5);
  CHECK(scaler.step(optimizer));
  CHECK(at::allclose(p, at::full({3}, 0.9)));  // not unscaled again
  scaler.update();
}

TEST_CASE("an overflow found by unscale_ is kept although the gradients were fixed afterwards") {
  auto p = leaf();
  Plain optimizer({p});
  GradScaler scaler;
  backward(scaler, p, kInf);
  scaler.unscale_(optimizer);
  p.mutable_grad().zero_();
  CHECK_FALSE(scaler.step(optimizer));
  CHECK(optimizer.steps == 0);
}

TEST_CASE("out of order is refused") {
  auto p = leaf();
  Plain optimizer({p});
  GradScaler scaler;
  const auto usage = [](auto&& fn, const char* what) {
    const auto e = error_of(fn);
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find(what) != std::string::npos);
  };
  usage([&] { scaler.scale({}); }, "undefined");
  usage([&] { scaler.update(); }, "without");
  usage([&] { scaler.step(optimizer); }, "gradient");
  backward(scaler, p);
  scaler.unscale_(optimizer);
  usage([&] { scaler.unscale_(optimizer); }, "twice");
  CHECK(scaler.step(optimizer));
  usage([&] { scaler.step(optimizer); }, "twice");
  usage([&] { scaler.unscale_(optimizer); }, "after step");
  CHECK(optimizer.steps == 1);
  scaler.update();
  scaler.unscale_(optimizer);
  CHECK(scaler.step(optimizer));
}

TEST_CASE("without gradients unscale_() does nothing, as in torch, and step() and update() report it") {
  auto a = leaf(), b = leaf();
  Plain none({a}), some({b});
  GradScaler scaler;
  scaler.unscale_(none);
  CHECK(error_of([&] { scaler.update(); }).kind() == ErrorKind::Usage);
  CHECK(has(error_of([&] { scaler.step(none); }).what(), "gradient"));
  scaler.unscale_(none);
  backward(scaler, b);
  scaler.unscale_(some);
  CHECK(scaler.step(some));
  scaler.update();
  CHECK(scaler.loss_scale().growth_tracker() == 1);
}

TEST_CASE("sparse gradients are unscaled by their values, as in torch; complex and expanded ones are refused by an Error") {
  const auto table = torch::zeros({4, 2}).requires_grad_();
  const auto sparse = [&](float value) {
    return at::sparse_coo_tensor(at::tensor({0, 2, 0}, at::kLong).view({1, 3}), at::tensor({4.F, 1.F, value, 1.F, 4.F, 1.F}).view({3, 2}),
                                 {4, 2});
  };
  torch::optim::SGD sgd({table}, torch::optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 4});
  table.mutable_grad() = sparse(8);
  scaler.scale(torch::zeros({}));
  CHECK(scaler.step(sgd));
  scaler.update();
  CHECK(at::equal(table, at::tensor({-2.F, -.5F, 0.F, 0.F, -2.F, -.25F, 0.F, 0.F}).view({4, 2})));
  table.mutable_grad() = sparse(std::numeric_limits<float>::infinity());
  CHECK_FALSE(scaler.step(sgd));
  scaler.update();
  CHECK(scaler.get_scale() == 2);

  torch::optim::Adam adam({table}, torch::optim::AdamOptions(1.0));
  table.mutable_grad() = sparse(8);
  const auto e = error_of([&] { scaler.step(adam); });  // contains the message of torch's optimizer
  CHECK_MESSAGE(has(e.what(), "sparse"), e.what());

  const auto refused = [](const at::Tensor& gradient, const char* said) {
    const auto p = at::zeros(gradient.sizes(), gradient.options()).set_requires_grad(true);
    p.mutable_grad() = gradient;
    torch::optim::SGD optimizer({p}, torch::optim::SGDOptions(1.0));
    GradScaler own;
    const auto e = error_of([&] { own.step(optimizer); });
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(e.what(), said), e.what());
    const auto again = error_of([&] { own.unscale_(optimizer); });  // the failed attempt leaves no trace
    CHECK_MESSAGE(has(again.what(), said), again.what());
  };
  refused(at::complex(at::ones({2}), at::ones({2})), "real numbers");
  refused(at::ones({1}).expand({4}), "share");
}

TEST_CASE("two optimizers: each skips for itself, one overflow backs off once") {
  auto a = leaf(), b = leaf();
  Plain first({a});
  torch::optim::SGD second({b}, 0.1);
  GradScaler scaler({.init_scale = 8});
  backward(scaler, a, kInf);
  backward(scaler, b);
  CHECK_FALSE(scaler.step(first));
  CHECK(scaler.step(second));
  scaler.update();
  CHECK(scaler.get_scale() == 4);
  CHECK(at::equal(a, at::ones({3})));
  CHECK(at::allclose(b, at::full({3}, 0.8)));
}

TEST_CASE_TEMPLATE("two scalers on one optimizer are refused: its gradients would be divided twice", T, Plain, torch::optim::SGD) {
  auto a = leaf(), b = leaf();
  T optimizer = [&] {
    if constexpr (std::is_same_v<T, Plain>)
      return Plain({a});
    else
      return torch::optim::SGD({a}, 0.1);
  }();
  Plain other({b});
  GradScaler first({.init_scale = 8}), second({.init_scale = 4});
  const auto refused = [&](const std::function<void()>& fn) {
    const auto gradient = a.grad().clone();
    const auto error = error_of(fn);
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK_MESSAGE(has(error.what(), "another GradScaler has unscaled"), error.what());
    CHECK(at::equal(a.grad(), gradient));
  };
  backward(first, a);
  backward(second, b);
  first.unscale_(optimizer);
  refused([&] { second.unscale_(optimizer); });
  refused([&] { second.step(optimizer); });
  CHECK(second.step(other));  // another optimizer
  second.update();
  CHECK(first.step(optimizer));
  refused([&] { second.step(optimizer); });
  first.update();
  a.mutable_grad() = at::Tensor();
  backward(second, a);
  CHECK(second.step(optimizer));  // it is another iteration
  second.update();
  backward(first, a);
  {
    GradScaler gone({.init_scale = 2});
    gone.unscale_(optimizer);
  }
  CHECK(first.step(optimizer));  // a destroyed scaler has no iteration
  GradScaler moved = std::move(first);
  refused([&] { second.unscale_(optimizer); });
  moved.update();
  second.unscale_(optimizer);
}

TEST_CASE("an optimizer that was unscaled but not stepped counts for the scale") {
  auto a = leaf();
  Plain first({a});
  GradScaler scaler({.init_scale = 8});
  backward(scaler, a, kInf);
  scaler.unscale_(first);
  scaler.update();
  CHECK(scaler.get_scale() == 4);
}

TEST_CASE("disabled, it has no effect") {
  auto p = leaf();
  Plain optimizer({p});
  GradScaler scaler({}, false);
  const auto loss = (p * 2).sum();
  CHECK(scaler.scale(loss).is_same(loss));
  loss.backward();
  p.mutable_grad()[0] = kInf;
  scaler.unscale_(optimizer);
  CHECK(scaler.step(optimizer));
  CHECK(optimizer.steps == 1);
  scaler.update();
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.state().empty());
}

TEST_CASE("ranks agree before anyone decides") {
  auto p = leaf();
  Plain optimizer({p});
  GradScaler scaler({.init_scale = 8}, true, [](at::Tensor& found) { found.fill_(1); });
  backward(scaler, p);
  CHECK_FALSE(scaler.step(optimizer));
  scaler.update();
  CHECK(scaler.get_scale() == 4);
}

TEST_CASE("fp16 gradients are refused") {
  auto p = at::ones({2}, at::kHalf).set_requires_grad(true);
  Plain optimizer({p});
  GradScaler scaler({.init_scale = 2});
  p.mutable_grad() = at::ones({2}, at::kHalf);
  CHECK(error_of([&] { scaler.unscale_(optimizer); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a scale of one's own") {
  auto p = leaf();
  Plain optimizer({p});
  GradScaler scaler;
  backward(scaler, p);
  scaler.step(optimizer);
  scaler.update(32);
  CHECK(scaler.get_scale() == 32);
  CHECK(error_of([&] { scaler.update(0); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a restored state continues inside a growth interval") {
  auto p = leaf();
  Plain optimizer({p});
  const auto iterate = [&](GradScaler& s, double slope) {
    p.mutable_grad().reset();
    backward(s, p, slope);
    s.step(optimizer);
    s.update();
  };
  const LossScaleOptions options{.init_scale = 64, .growth_interval = 4};
  GradScaler a(options);
  for (const double slope : {1.0, double(kInf), 1.0, 1.0, 1.0}) iterate(a, slope);
  CHECK(std::get<int64_t>(a.state().values.at("growth_tracker")) == 3);
  GradScaler b(options);
  b.load_state(a.state());
  CHECK(b.get_scale() == 32);
  iterate(b, 1);
  CHECK(b.get_scale() == 64);
}

TEST_CASE("overflows of a hysteresis are saved; a state from before it had none") {
  GradScaler a({.init_scale = 8, .hysteresis = 3}), b({.init_scale = 8, .hysteresis = 3});
  auto state = a.state();
  CHECK(std::get<int64_t>(state.values.at("overflows")) == 0);
  state.values["overflows"] = int64_t{2};
  a.load_state(state);
  state.values.erase("overflows");
  b.load_state(state);
  CHECK(std::get<int64_t>(a.state().values.at("overflows")) == 2);
  CHECK(b.loss_scale().state().overflows == 0);
}

TEST_CASE("a state that lacks a part is refused and changes nothing") {
  GradScaler scaler;
  for (const char* key : {"scale", "growth_tracker", "skip_streak"}) {
    auto state = GradScaler({.init_scale = 4}).state();
    state.values.erase(key);
    CHECK(error_of([&] { scaler.load_state(state); }).kind() == ErrorKind::Checkpoint);
  }
  CHECK(error_of([&] { scaler.load_state({}); }).kind() == ErrorKind::Checkpoint);
  CHECK(scaler.get_scale() == 65536);
}

TEST_CASE("a scale that is no power of two is undone to rounding") {
  auto p = leaf();
  Plain optimizer({p});
  GradScaler scaler({.init_scale = 1000});
  backward(scaler, p, 3);
  scaler.unscale_(optimizer);
  CHECK(at::allclose(p.grad(), at::full({3}, 3.0), 1e-6, 0));
}

namespace {

// Updates slices, as an optimizer with shards does.
struct OfSlices final : SkippableStep {
  explicit OfSlices(ParameterSet slices) : slices_(std::move(slices)) {}
  void step(const StepDecision&) override { ++steps; }
  const ParameterSet& parameters() const override { return slices_; }
  ParameterSet slices_;
  int steps = 0;
};

}  // namespace

TEST_CASE("an optimizer of slices is refused without an agreement of the ranks, which would not skip the same steps") {
  const Parameter all{.name = "all", .value = at::ones({128})};
  for (const int64_t numel : {64, 128}) {
    ParameterSet slices;
    slices.add(all.slice(0, numel));
    slices[0].value.mutable_grad() = at::ones({numel});
    OfSlices optimizer(slices);
    GradScaler scaler;
    if (numel == 128) {  // with one rank, its slice has all elements
      CHECK(scaler.step(optimizer));
      continue;
    }
    const auto error = error_of([&] { scaler.step(optimizer); });
    CHECK(error.kind() == ErrorKind::Usage);
    CHECK(has(error.what(), "all is a slice of 64 of 128 elements"));
    CHECK(optimizer.steps == 0);
    GradScaler agreed({}, true, [](at::Tensor& found_inf) { found_inf.fill_(1); });
    CHECK_FALSE(agreed.step(optimizer));
    CHECK(GradScaler({}, /*enabled=*/false).step(optimizer));
  }
}
