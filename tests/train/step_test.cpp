#include "testing.hpp"

#include "npu_train/train/step.hpp"

#include <torch/optim/sgd.h>

#include "npu_train/base/state.hpp"
#include "npu_train/optim/clip.hpp"
#include "toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

double loss_of(const StepResult& r) { return r.packed[0].item<double>() / r.loss_weight; }

/// Returns a batch whose forward overflows fp16 but not fp32.
Batch huge_batch() {
  auto b = toy_batch(8, 6);
  b.set("input", b.input() * 1e6);
  return b;
}

Batch rows(const Batch& whole, int64_t from, int64_t to) {
  return Batch(whole.input().slice(0, from, to), whole.target().slice(0, from, to));
}

}  // namespace

TEST_CASE("one batch in 32-true equals a plain libtorch step") {
  Toy toy;
  auto step = toy.step();
  const auto batch = toy_batch();
  torch::manual_seed(11);
  ToyNet plain(0.0);
  plain->to(device_under_test().c10());
  torch::optim::SGD sgd(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
  for (int i = 0; i < 3; ++i) {
    const auto result = step.run({batch});
    sgd.zero_grad();
    auto loss = torch::cross_entropy_loss(plain(batch.input()), batch.target());
    loss.backward();
    sgd.step();
    CHECK(result.taken);
    CHECK(loss_of(result) == doctest::Approx(loss.item<double>()).epsilon(1e-6));
  }
  for (const auto& p : toy.task->parameters()) CHECK(torch::allclose(p.value, plain->named_parameters()[p.name], 1e-5, 1e-7));
  CHECK(step.attempts() == 3);
}

TEST_CASE("a window equals one large batch if no batch statistics are involved") {
  // Evaluation mode freezes BatchNorm, so that splitting a batch changes only the order of sums.
  const auto whole = toy_batch(12);
  const auto run = [&](const std::vector<Batch>& window) {
    Toy toy;
    toy.task->set_training(false);
    toy.step().run(window);
    return copy_of(toy.task->parameters());
  };
  const auto expected = run({whole});
  SUBCASE("even") {
    for (const auto& [name, value] : run({rows(whole, 0, 4), rows(whole, 4, 8), rows(whole, 8, 12)}))
      CHECK(torch::allclose(value, expected.at(name), 1e-5, 1e-7));
  }
  SUBCASE("uneven") {
    for (const auto& [name, value] : run({rows(whole, 0, 7), rows(whole, 7, 8), rows(whole, 8, 12)}))
      CHECK(torch::allclose(value, expected.at(name), 1e-5, 1e-7));
  }
}

TEST_CASE("loss and metrics of an uneven window are averages over its samples") {
  const auto whole = toy_batch(12);
  Toy one, many;
  one.task->set_training(false);
  many.task->set_training(false);
  const auto a = one.step().run({whole});
  const auto b = many.step().run({rows(whole, 0, 7), rows(whole, 7, 12)});
  CHECK(loss_of(a) == doctest::Approx(loss_of(b)).epsilon(1e-6));
  CHECK(a.packed[1].item<double>() / a.samples == doctest::Approx(b.packed[1].item<double>() / b.samples));
  CHECK(b.samples == 12);
}

TEST_CASE("a skipped step leaves everything but the scaler bit-identical") {
  for (const bool first : {true, false}) {
    for (const char* name : {"sgd", "adamw"}) {
      CAPTURE(first);
      CAPTURE(name);
      Toy toy("16-mixed", name);
      toy.with_ema();
      auto step = toy.step({.clip_value = 1.0});
      if (!first) REQUIRE(step.run({toy_batch()}).taken);
      const auto parameters = digest(toy.optimizer->parameters());
      const auto state = digest(toy.optimizer->state());
      const auto average = digest(toy.average->state());
      State buffers;
      for (const auto& [key, value] : toy.task->buffers()) buffers.tensors[key] = value;
      const auto before = digest(buffers);
      const double scale = toy.precision->scale();

      const auto result = step.run({huge_batch()});
      CHECK_FALSE(result.taken);
      CHECK(digest(toy.optimizer->parameters()) == parameters);
      CHECK(digest(toy.optimizer->state()) == state);
      CHECK(digest(toy.average->state()) == average);
      CHECK(digest(buffers) == before);
      CHECK(toy.precision->scale() == scale / 2);
      for (const auto& p : toy.optimizer->parameters()) CHECK_FALSE(p.value.grad().defined());

      CHECK(step.run({toy_batch()}).taken);
      for (const auto& p : toy.optimizer->parameters()) CHECK(torch::isfinite(p.value).all().item<bool>());
      CHECK(torch::isfinite(toy.net->norm->running_mean).all().item<bool>());
    }
  }
}

TEST_CASE("evaluation stays finite after a forward that overflowed") {
  Toy toy("16-mixed");
  auto step = toy.step();
  step.run({huge_batch()});
  toy.task->set_training(false);
  const torch::NoGradGuard no_grad;
  CHECK(torch::isfinite(toy.net->forward(toy_batch().input())).all().item<bool>());
}

TEST_CASE("an overflow in one micro-batch skips the complete window") {
  Toy toy("16-mixed");
  auto step = toy.step();
  const auto before = digest(toy.optimizer->parameters());
  CHECK_FALSE(step.run({toy_batch(), huge_batch(), toy_batch(4)}).taken);
  CHECK(digest(toy.optimizer->parameters()) == before);
}

namespace {

/// Records whether a step reaches its kernels, and whether it has a flag.
class Probe final : public Optimizer {
 public:
  explicit Probe(ParameterSet parameters) : Optimizer(std::move(parameters), 0.1, {{}, {}}) {}
  std::string name() const override { return "probe"; }
  int updates = 0, flags = 0;

 private:
  void update(Bucket& bucket) override {
    ++updates;
    flags += bucket.found_inf.defined();
  }
};

}  // namespace

TEST_CASE("kernels get found_inf where those of the device take it; elsewhere the host decides") {
  const auto& device = device_under_test();
  const bool takes = backend_of(device).capabilities(device).skips_on_device;
  CHECK(takes == (device.kind == "cpu" || device.kind == "cuda"));
  Toy toy("16-mixed");
  auto* probe = new Probe(toy.optimizer->parameters());
  toy.optimizer.reset(probe);
  auto step = toy.step();
  CHECK(step.run({toy_batch()}).taken);
  const int once = probe->updates;
  CHECK(once > 0);
  CHECK(probe->flags == (takes ? once : 0));
  CHECK_FALSE(step.run({huge_batch()}).taken);
  CHECK(probe->updates == (takes ? 2 * once : once));
}

TEST_CASE("clipping sees unscaled gradients") {
  // With a scale of 65536, a norm taken before unscaling would be 65536 times too large, and the update 65536 times too small.
  const auto update = [](const std::string& mode) {
    Toy toy(mode);
    const auto before = copy_of(toy.optimizer->parameters());
    auto step = toy.step({.clip_value = 0.05});
    const auto norm = step.run({toy_batch()}).packed[-1].item<double>();
    at::Tensor difference = toy.optimizer->parameters().find("first.weight")->value.detach() - before.at("first.weight");
    return std::pair(norm, difference.norm().item<double>());
  };
  const auto [norm32, moved32] = update("32-true");
  const auto [norm16, moved16] = update("16-mixed");
  CHECK(norm16 == doctest::Approx(norm32).epsilon(0.02));
  CHECK(moved16 == doctest::Approx(moved32).epsilon(0.02));
  CHECK(norm32 > 0.05);
}

TEST_CASE("clipping by value bounds each element") {
  Toy toy("32-true", "sgd");
  const auto before = copy_of(toy.optimizer->parameters());
  toy.step({.clip_value = 1e-4, .clip_by_norm = false}).run({toy_batch()});
  for (const auto& p : toy.optimizer->parameters()) {
    const auto moved = (p.value.detach() - before.at(p.name)).abs().max().item<double>();
    CHECK(moved <= 0.1 * (1e-4 + 1e-3 * before.at(p.name).abs().max().item<double>()) + 1e-7);
  }
}

TEST_CASE("low-precision parameters accumulate gradients in fp32 over a window") {
  const std::vector<Batch> batches{toy_batch(8, 1), toy_batch(8, 2)};
  struct Gradients : StepObserver {
    explicit Gradients(const ParameterSet& p) : parameters(p) {}
    void phase_begin(Phase phase, int64_t, int) override {
      if (phase == Phase::Optimizer)
        for (const auto& p : parameters) seen.push_back(p.value.grad().clone());
    }
    const ParameterSet& parameters;
    std::vector<at::Tensor> seen;
  };
  const auto gradients_of = [](const std::vector<Batch>& window) {
    Toy toy("bf16-true");
    toy.task->set_training(false);
    Gradients gradients(toy.optimizer->parameters());
    toy.observers.add(&gradients);
    toy.step().run(window);
    return gradients.seen;
  };
  // A micro-batch has half the weight of the window, and halves are exact in bf16, so only the sum is rounded.
  const auto both = gradients_of(batches), first = gradients_of({batches[0]}), second = gradients_of({batches[1]});
  bool rounds = false;
  for (size_t i = 0; i < both.size(); ++i) {
    const auto sum = first[i] / 2 + second[i] / 2;
    CHECK((both[i].scalar_type() == at::kFloat));
    CHECK(at::equal(both[i], sum));
    rounds |= !at::equal(sum, sum.to(at::kBFloat16).to(at::kFloat));
  }
  CHECK(rounds);  // sums in bf16 would differ
}

TEST_CASE("misuse is reported") {
  Toy toy;
  auto step = toy.step();
  CHECK(error_of([&] { step.run({}); }).kind() == ErrorKind::Usage);
  auto empty = toy_batch();
  empty.weight = 0;
  const auto result = step.run({empty});  // nothing counts, so there is no update, and no error
  CHECK(result.empty);
  CHECK_FALSE(result.taken);
}

TEST_CASE("a micro-batch of weight 0 gives no gradient and no loss, although its mean loss is not a number") {
  for (const char* mode : {"32-true", "16-mixed", "bf16-true"})
    for (const bool first : {false, true}) {
      CAPTURE(mode);
      CAPTURE(first);
      auto nothing = toy_batch(8, 2);
      nothing.set("input", nothing.input() * kNaN);
      nothing.weight = 0;
      Toy with(mode), without(mode);
      std::vector<Batch> window{toy_batch(8, 1), toy_batch(8, 3)};
      auto plain = without.step({.clip_value = 1});
      const auto expected = plain.run(window, 16);
      window.insert(first ? window.begin() : window.end(), nothing);
      auto step = with.step({.clip_value = 1});
      const auto got = step.run(window, 16);
      CHECK(got.taken);
      CHECK(got.weight == expected.weight);
      CHECK(loss_of(got) == loss_of(expected));
      CHECK(digest(with.task->parameters()) == digest(without.task->parameters()));
    }
}

TEST_CASE("observers see the phases in order") {
  struct Watch : StepObserver {
    std::vector<Phase> seen;
    void phase_begin(Phase phase, int64_t, int) override { seen.push_back(phase); }
  } watch;
  Toy toy;
  toy.observers.add(&watch);
  toy.step({.clip_value = 1}).run({toy_batch()});
  CHECK((watch.seen == std::vector<Phase>{Phase::Forward, Phase::Backward, Phase::Reduce, Phase::Unscale, Phase::Clip, Phase::Optimizer}));
}
