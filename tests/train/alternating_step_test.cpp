// Several optimizers in one task: each step is compared with libtorch's optimizers, and with the contract on skips, clipping, ranks and
// checkpoints.
#include "testing.hpp"

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "dist/in_process.hpp"
#include "npu_train/optim/optimizers.hpp"
#include "train/alternating_step.hpp"
#include "train/gan.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::AlternatingStep;

namespace {

constexpr double kRateOfDiscriminator = 0.05, kRateOfGenerator = 0.01;

Batch gan_batch(int64_t n, uint64_t seed) {
  torch::manual_seed(seed);
  return to_device(Batch(torch::randn({n, 6}) + 1, torch::randn({n, 4})), device_under_test());
}

/// Everything that a step or a loop of the two networks needs.
struct TwoOptimizers {
  explicit TwoOptimizers(const std::string& mode = "32-true", int64_t every = 1, GradScalerOptions scaler = {}) : task(every) {
    at::set_num_threads(1);
    task.to(device_under_test().c10());
    for (const auto& name : task.optimizers()) {
      precisions.push_back(make_precision({mode, scaler, {}}, device_under_test()));
      const auto own = task.parameters().filter([&](const Parameter& p) { return p.name.starts_with(name + "."); });
      const auto updated = precisions.back()->prepare(own, task.norm_parameters());
      if (name == "generator")
        optimizers.push_back(std::make_unique<Adam>(updated, AdamOptions{.lr = kRateOfGenerator}));
      else
        optimizers.push_back(std::make_unique<Sgd>(updated, SgdOptions{.lr = kRateOfDiscriminator, .momentum = 0.9}));
      strategies.push_back(std::make_shared<SingleDeviceStrategy>());
    }
  }
  void use(const std::shared_ptr<Exchange>& exchange, int rank) {
    for (size_t i = 0; i < strategies.size(); ++i) {
      strategies[i] = make_rank(exchange, rank, /*sharded=*/false);
      optimizers[i]->set_parameters(strategies[i]->setup(optimizers[i]->parameters()));
      precisions[i]->set_updated(optimizers[i]->parameters());
    }
  }
  OptimizerParts parts_of(size_t i) {
    return {.name = task.optimizers()[i],
            .precision = precisions[i].get(),
            .optimizer = optimizers[i].get(),
            .strategy = strategies[i].get(),
            .base_lr = optimizers[i]->lr()};
  }
  AlternatingStep step(const StepOptions& options = {}) {
    return AlternatingStep(task, task.parameters(), {parts_of(0), parts_of(1)}, average.get(), observers, options);
  }
  void with_average(AverageOptions options) {
    const auto own = task.parameters().filter([](const Parameter& p) { return p.name.starts_with("generator."); });
    average = std::make_unique<WeightAverage>(optimizers[1]->parameters(), std::move(options), task.buffers(), own);
  }
  std::unique_ptr<TrainLoop> loop(TrainerOptions options, LoaderOptions data = {.batch_size = 8, .shuffle = true, .seed = 7}) {
    torch::manual_seed(3);
    const auto set = std::make_shared<TensorDataset>(torch::randn({40, 6}) + 1, torch::randn({40, 4}));
    loader = std::make_unique<Loader>(set, Pipeline(), data);
    LoopParts parts;
    parts.task = &task;
    parts.optimizers = {parts_of(0), parts_of(1)};
    parts.average = average.get();
    parts.schedule = &schedule;
    parts.train_loader = loader.get();
    parts.device = device_under_test();
    return std::make_unique<TrainLoop>(parts, options, CheckpointOptions{}, EarlyStoppingOptions{});
  }
  uint64_t weights() const { return digest(optimizers[0]->parameters()) ^ (3 * digest(optimizers[1]->parameters())); }

  GanTask task;
  std::vector<std::unique_ptr<Precision>> precisions;
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  std::vector<std::shared_ptr<Strategy>> strategies;
  std::unique_ptr<WeightAverage> average;
  LrSchedule schedule{[](double t) { return 1 / (1 + t); }, false};
  std::unique_ptr<Loader> loader;
  Observers observers;
};

/// The loop of a PyTorch program over the same windows.
struct PlainGan {
  PlainGan() { net->to(device_under_test().c10()); }
  void step(const std::vector<Batch>& window, bool generator) {
    update("discriminator", sgd, window);
    if (generator) update("generator", adam, window);
  }
  void update(const std::string& of, torch::optim::Optimizer& optimizer, const std::vector<Batch>& window) {
    net->zero_grad();
    double samples = 0;
    for (const auto& batch : window) samples += static_cast<double>(batch.size);
    for (const auto& batch : window)
      (gan_loss(net, of, batch.input(), batch.target()) * (static_cast<double>(batch.size) / samples)).backward();
    if (clip > 0) {
      auto own = of == "generator" ? net->generator->parameters() : net->discriminator->parameters();
      torch::nn::utils::clip_grad_norm_(own, clip);
    }
    optimizer.step();
  }
  GanNet net;
  double clip = 0;
  torch::optim::SGD sgd{net->discriminator->parameters(), torch::optim::SGDOptions(kRateOfDiscriminator).momentum(0.9)};
  torch::optim::Adam adam{net->generator->parameters(), torch::optim::AdamOptions(kRateOfGenerator)};
};

void check_same(GanTask& task, PlainGan& plain) {
  for (const auto& p : task.parameters()) {
    CAPTURE(p.name);
    CHECK(torch::allclose(p.value, plain.net->named_parameters()[p.name], 1e-4, 1e-5));
  }
  for (const auto& [name, buffer] : task.buffers()) {
    CAPTURE(name);
    CHECK(torch::allclose(buffer, plain.net->named_buffers()[name], 1e-4, 1e-5));
  }
}

}  // namespace

TEST_CASE("windows of two optimizers equal the loop of a libtorch program: accumulated, clipped, and with a generator that waits") {
  for (const int64_t every : {1, 3})
    for (const double clip : {0.0, 0.05}) {
      CAPTURE(every);
      CAPTURE(clip);
      TwoOptimizers two("32-true", every);
      auto step = two.step({.clip_value = clip});
      PlainGan plain;
      plain.clip = clip;
      for (int64_t i = 0; i < 7; ++i) {
        const auto seed = static_cast<uint64_t>(10 * i);
        const std::vector<Batch> window{gan_batch(6, seed), gan_batch(2, seed + 1)};
        const auto result = step.run(window);
        plain.step(window, (i + 1) % every == 0);
        CHECK(result.taken);
        CHECK(result.samples == 8);
        CHECK(result.micro_batches == 2);
      }
      check_same(two.task, plain);
      CHECK(two.task.trained == "");
      for (const auto& p : two.task.parameters()) CHECK(p.value.requires_grad());
      CHECK(step.attempts() == 7);
    }
}

TEST_CASE("observers see each step under the number of its window") {
  struct Attempts final : StepObserver {
    void phase_begin(Phase phase, int64_t attempt, int) override {
      if (phase == Phase::Optimizer) seen.push_back(attempt);
    }
    std::vector<int64_t> seen;
  } attempts;
  TwoOptimizers two("32-true", 2);
  two.observers.add(&attempts);
  auto step = two.step();
  for (uint64_t i = 0; i < 4; ++i) step.run({gan_batch(8, i)});
  CHECK(attempts.seen == std::vector<int64_t>{0, 1, 1, 2, 3, 3});
}

TEST_CASE("the result has the sum of the losses, each loss as a metric, and the norm of all gradients") {
  TwoOptimizers two;
  auto step = two.step({.clip_value = 1e9});
  GanNet net;
  net->to(device_under_test().c10());
  const auto batch = gan_batch(8, 5);
  auto of_discriminator = gan_loss(net, "discriminator", batch.input(), batch.target());
  of_discriminator.backward();
  const auto result = step.run({batch});
  const auto numbers = result.packed.cpu();  // loss, 2 sums, 2 counts, norm
  REQUIRE(numbers.numel() == 6);
  const auto number = [&](int64_t i) { return numbers[i].item<double>(); };
  CHECK(number(1) / number(3) == doctest::Approx(of_discriminator.item<double>()).epsilon(1e-5));
  CHECK(number(3) == 8);
  CHECK(number(4) == 8);
  CHECK(number(0) / result.loss_weight == doctest::Approx((number(1) + number(2)) / 8).epsilon(1e-5));
  double squares = 0;
  for (const auto& p : net->discriminator->parameters()) squares += p.grad().square().sum().item<double>();
  CHECK(number(5) > std::sqrt(squares));
}

TEST_CASE("an optimizer that skips leaves its parameters, and the other steps with its own scale") {
  TwoOptimizers two("16-mixed", 1, {.init_scale = 1024});
  auto step = two.step();
  REQUIRE(step.run({gan_batch(8, 1)}).taken);
  auto overflowing = gan_batch(8, 2);
  overflowing.set("input", overflowing.input() * 1e30);  // only the discriminator sees real samples
  const auto discriminator = digest(two.optimizers[0]->parameters()), of_state = digest(two.optimizers[0]->state());
  const auto generator = digest(two.optimizers[1]->parameters());
  const double scale = two.precisions[0]->scale(), other_scale = two.precisions[1]->scale();
  const auto result = step.run({overflowing});
  CHECK_FALSE(result.taken);
  CHECK_FALSE(result.empty);
  CHECK(digest(two.optimizers[0]->parameters()) == discriminator);
  CHECK(digest(two.optimizers[0]->state()) == of_state);
  CHECK(digest(two.optimizers[1]->parameters()) != generator);
  CHECK(two.precisions[0]->scale() == scale / 2);
  CHECK(two.precisions[1]->scale() == other_scale);
  CHECK(step.run({gan_batch(8, 3)}).taken);
}

TEST_CASE("the average of one optimizer's parameters moves in the windows in which it steps, and resumes to the bit") {
  const AverageOptions options{.enabled = true, .decay = 0.5, .warmup = false, .of = "generator"};
  TwoOptimizers two("32-true", 2);
  two.with_average(options);
  auto step = two.step();
  auto expected = copy_of(two.optimizers[1]->parameters());
  for (uint64_t i = 1; i <= 4; ++i) {
    step.run({gan_batch(8, i)});
    if (i % 2 != 0) continue;
    for (const auto& p : two.optimizers[1]->parameters()) expected[p.name] = 0.5 * expected[p.name] + 0.5 * p.value.detach();
  }
  CHECK(two.average->updates() == 2);
  REQUIRE(two.average->averages().size() == 5);
  for (const auto& p : two.average->averages()) {
    CAPTURE(p.name);
    CHECK(torch::allclose(p.value, expected.at(p.name), 1e-5, 1e-6));
  }

  for (const char* kind : {"ema", "swa"}) {
    CAPTURE(kind);
    const AverageOptions kept{.enabled = true, .kind = kind, .start = 1, .of = "generator"};
    const auto limits = [](int64_t steps) { return TrainerOptions{.max_epochs = -1, .max_steps = steps, .check_val_every_n_epoch = 0}; };
    TwoOptimizers whole, half, rest;
    for (auto* one : {&whole, &half, &rest}) one->with_average(kept);
    whole.loop(limits(12))->fit();
    auto half_loop = half.loop(limits(7));
    half_loop->fit();
    auto rest_loop = rest.loop(limits(12));
    rest_loop->load_state(snapshot(*half_loop));
    rest_loop->fit();
    CHECK(digest(rest.average->state()) == digest(whole.average->state()));
    CHECK(rest.weights() == whole.weights());
  }

  TwoOptimizers nameless;
  nameless.with_average({.enabled = true});
  CHECK(has(error_of([&] { nameless.loop({.max_epochs = 1}); }).what(), "average.of"));
}

TEST_CASE("N steps, state, N steps equal 2N steps of both optimizers, and each has its part of a checkpoint") {
  for (const char* mode : {"32-true", "16-mixed", "bf16-true"}) {
    CAPTURE(mode);
    const auto options = [](int64_t steps) { return TrainerOptions{.max_epochs = -1, .max_steps = steps, .check_val_every_n_epoch = 0}; };
    TwoOptimizers whole(mode, 2);
    whole.loop(options(12))->fit();

    TwoOptimizers half(mode, 2);
    auto half_loop = half.loop(options(7));
    half_loop->fit();
    const auto state = snapshot(*half_loop);
    for (const char* part : {"optimizer.discriminator", "optimizer.generator", "scaler.discriminator", "scaler.generator"})
      CHECK(state.count(part) == 1);
    CHECK(state.count("optimizer") == 0);

    TwoOptimizers rest(mode, 2);
    auto rest_loop = rest.loop(options(12));
    rest_loop->load_state(state);
    rest_loop->fit();
    CHECK(rest.weights() == whole.weights());
    for (size_t i = 0; i < 2; ++i) CHECK(digest(rest.optimizers[i]->state()) == digest(whole.optimizers[i]->state()));
    CHECK(rest.optimizers[1]->lr() == whole.optimizers[1]->lr());

    TwoOptimizers fresh(mode, 2), left(mode, 2);
    left.loop(options(12))->load_state(state, {"optimizer"});  // leaves out the state of every optimizer
    for (size_t i = 0; i < 2; ++i) CHECK(digest(left.optimizers[i]->state()) == digest(fresh.optimizers[i]->state()));
    CHECK(rest.optimizers[1]->lr() == doctest::Approx(rest.optimizers[0]->lr() * kRateOfGenerator / kRateOfDiscriminator));
  }
}

TEST_CASE("two ranks have the bits of one process that accumulates their micro-batches") {
  const auto end = [](int ranks) {
    const auto exchange = std::make_shared<Exchange>(ranks);
    std::vector<std::unique_ptr<TwoOptimizers>> all;
    std::vector<std::unique_ptr<TrainLoop>> loops;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& two = *all.emplace_back(std::make_unique<TwoOptimizers>());
      if (ranks > 1) two.use(exchange, rank);
      loops.push_back(two.loop({.max_epochs = 3, .accumulate_grad_batches = 2 / ranks, .num_sanity_val_steps = 0},
                               {.batch_size = 8, .shuffle = true, .seed = 7, .rank = rank, .world_size = ranks}));
    }
    on_ranks(*exchange, [&](int rank) { loops[static_cast<size_t>(rank)]->fit(); });
    std::vector<uint64_t> out;
    for (const auto& two : all) out.push_back(two->weights());
    return out;
  };
  const auto one = end(1).front();
  for (const auto weights : end(2)) CHECK(weights == one);
}

TEST_CASE("what several optimizers cannot do is refused by name") {
  TwoOptimizers two;
  const auto message = [&](TrainerOptions options) { return std::string(error_of([&] { two.loop(std::move(options)); }).what()); };
  CHECK(has(message({.on_oom = "retry"}), "trainer.on_oom"));
  auto loop = two.loop({.max_epochs = 1});
  CHECK(has(error_of([&] { loop->refresh_parameters(); }).what(), "several optimizers"));
}
