// Portable random numbers of a training: two ranks draw the numbers of one process that runs the micro-batches of both.
#include "testing.hpp"

#include <atomic>
#include <functional>
#include <set>

#include "dist/in_process.hpp"
#include "npu_train/device/random.hpp"
#include "train/callbacks/evaluation.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr uint64_t kDrawSeed = 21;

using DrawnNumbers = std::vector<std::vector<float>>;

/// Records what it draws in each step.
class DrawingTask final : public Task {
 public:
  StepOutput training_step(const ForwardContext& context) override {
    const auto& batch = context.batch();
    draw();
    if (fails-- == 0) throw Error(ErrorKind::Data, "DrawingTask", "this step fails");
    return {(w_ * batch.input()).sum(), batch.weight, {}};
  }
  at::Tensor predict(const at::Tensor& input) override {
    draw();
    return input * w_;
  }
  ParameterSet parameters() override {
    ParameterSet out;
    out.add({.name = "w", .value = w_});
    return out;
  }
  void set_training(bool) override {}
  void to(c10::Device) override {}

  DrawnNumbers drawn;
  int fails = -1;  // number of steps after which it fails

 private:
  void draw() {
    const auto t = PortableRandom::uniform({3}, at::kCPU);
    drawn.emplace_back(t.const_data_ptr<float>(), t.const_data_ptr<float>() + 3);
  }
  at::Tensor w_ = at::ones({1}).set_requires_grad(true);
};

/// A DrawingTask, with everything that its steps need.
struct Drawing {
  explicit Drawing(std::shared_ptr<Strategy> ranks = std::make_shared<SingleDeviceStrategy>()) : strategy(std::move(ranks)) {
    strategy->setup(task.parameters());
  }
  TrainStep step(StepOptions options = {}) {
    return TrainStep(task, *precision, optimizer, nullptr, *strategy, observers, std::move(options));
  }
  DrawingTask task;
  std::unique_ptr<Precision> precision = make_precision({.mode = "32-true"}, Device{});
  Sgd optimizer{task.parameters(), SgdOptions{.lr = 0.1}};
  std::shared_ptr<Strategy> strategy;
  Observers observers;
};

Batch ones_batch(float value = 1) {
  Batch batch(at::full({2, 1}, value), at::zeros({2}, at::kLong));
  return batch;
}

std::vector<Batch> ones_window(size_t micro_batches) { return std::vector<Batch>(micro_batches, ones_batch()); }

DrawnNumbers of_one_process(size_t windows, size_t micro_batches) {
  const PortableRandom random(kDrawSeed);
  Drawing one;
  auto step = one.step();
  for (size_t w = 0; w < windows; ++w) step.run(ones_window(micro_batches), 8);
  return one.task.drawn;
}

struct TrainedRank {
  std::vector<uint64_t> weights;  // digests of the weights after each window
  std::vector<at::Tensor> packed;
  std::vector<bool> taken;
};

/// Returns windows with one micro-batch for each of two ranks; the input of one micro-batch overflows fp16.
std::vector<std::vector<Batch>> windows_of_two() {
  std::vector<std::vector<Batch>> out;
  for (uint64_t w = 0; w < 5; ++w) out.push_back({toy_batch(8, 10 * w), toy_batch(5, 10 * w + 1)});
  out[2][1].set("input", out[2][1].input() * 1e6);
  return out;
}

std::unique_ptr<Toy> dropout_toy(const char* mode, bool recompute) {
  auto toy = std::make_unique<Toy>(mode, "sgd", /*dropout=*/0.4, GradScalerOptions{.init_scale = 1024});
  toy->net->recompute = recompute;
  return toy;
}

TrainedRank trained_with(Toy& toy, const std::vector<std::vector<Batch>>& windows) {
  const PortableRandom random(kDrawSeed);
  TrainedRank out;
  auto step = toy.step({.clip_value = 0.5});
  for (const auto& window : windows) {
    const auto result = step.run(window, 16);
    out.weights.push_back(weights(toy));
    out.packed.push_back(result.packed);
    out.taken.push_back(result.taken);
  }
  return out;
}

}  // namespace

TEST_CASE("draws: two ranks with portable dropout give the bits of one process, also if it is computed again in the backward") {
  const auto windows = windows_of_two();
  for (const char* mode : {"32-true", "16-mixed"}) {
    std::vector<uint64_t> first_weights;
    for (const bool recompute : {false, true}) {
      CAPTURE(mode);
      CAPTURE(recompute);
      auto one = dropout_toy(mode, recompute);
      const auto expected = trained_with(*one, windows);
      CHECK(expected.taken[2] == (std::string(mode) != "16-mixed"));
      if (first_weights.empty()) first_weights = expected.weights;
      CHECK(expected.weights == first_weights);

      const auto exchange = std::make_shared<Exchange>(2);
      std::vector<std::unique_ptr<Toy>> toys;
      std::vector<std::vector<std::vector<Batch>>> own(2);
      for (size_t rank = 0; rank < 2; ++rank) {
        toys.push_back(dropout_toy(mode, recompute));
        toys[rank]->strategy = make_rank(exchange, static_cast<int>(rank), /*sharded=*/false);
        toys[rank]->strategy->setup(toys[rank]->optimizer->parameters());
        for (const auto& window : windows) own[rank].push_back({window[rank]});
      }
      std::vector<TrainedRank> found(2);
      on_ranks(*exchange, [&](int r) {
        const auto rank = static_cast<size_t>(r);
        found[rank] = trained_with(*toys[rank], own[rank]);
      });
      for (const auto& rank : found) {
        CHECK(rank.weights == expected.weights);
        CHECK(rank.taken == expected.taken);
        for (size_t w = 0; w < windows.size(); ++w)
          if (rank.taken[w]) CHECK(at::equal(rank.packed[w], expected.packed[w]));
      }
    }
  }
}

TEST_CASE("draws: the k-th micro-batch of a rank draws the numbers of micro-batch k * N + rank") {
  const auto expected = of_one_process(/*windows=*/2, /*micro_batches=*/4);
  const std::set<std::vector<float>> different(expected.begin(), expected.end());
  CHECK(different.size() == 8);
  const auto exchange = std::make_shared<Exchange>(2);
  std::vector<DrawnNumbers> found(2);
  on_ranks(*exchange, [&](int rank) {
    const PortableRandom random(kDrawSeed);
    Drawing own(make_rank(exchange, rank, /*sharded=*/false));
    auto step = own.step();
    for (int w = 0; w < 2; ++w) step.run(ones_window(2), 8);
    found[static_cast<size_t>(rank)] = own.task.drawn;
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(found[rank].size() == 4);
    for (size_t w = 0; w < 2; ++w)
      for (size_t k = 0; k < 2; ++k) CHECK(found[rank][2 * w + k] == expected[4 * w + 2 * k + rank]);
  }
}

TEST_CASE("draws: earlier draws and earlier windows do not matter; a window that failed draws the same again") {
  const auto expected = of_one_process(3, 2);
  const PortableRandom random(kDrawSeed);
  Drawing own;
  auto step = own.step({.keep_start = true});
  PortableRandom::uniform({5}, at::kCPU);
  const auto position = PortableRandom::position();
  step.set_attempts(1);
  own.task.fails = 1;
  CHECK(error_of([&] { step.run(ones_window(2), 4); }).kind() == ErrorKind::Data);
  CHECK((PortableRandom::position() == position));
  step.undo_window();
  step.run(ones_window(2), 4);
  step.run(ones_window(2), 4);
  CHECK((PortableRandom::position() == position));
  REQUIRE(own.task.drawn.size() == 6);
  for (size_t i = 0; i < 2; ++i) CHECK(own.task.drawn[i] == expected[2 + i]);
  for (size_t i = 2; i < 6; ++i) CHECK(own.task.drawn[i] == expected[i]);
}

TEST_CASE("draws: the explanation of an overflow sees the numbers of its window, on each rank") {
  const auto exchange = std::make_shared<Exchange>(2);
  std::vector<DrawnNumbers> found(2);
  on_ranks(*exchange, [&](int rank) {
    const PortableRandom random(kDrawSeed);
    Drawing own(make_rank(exchange, rank, /*sharded=*/false));
    auto step = own.step({.on_overflow = [](const OverflowReport&) {}, .detect_anomaly = true});
    step.run(ones_window(2), 8);
    step.run({ones_batch(), ones_batch(rank == 1 ? std::numeric_limits<float>::infinity() : 1)}, 8);
    found[static_cast<size_t>(rank)] = own.task.drawn;
  });
  for (const auto& rank : found) {
    REQUIRE(rank.size() == 6);
    CHECK(rank[4] == rank[2]);
    CHECK(rank[5] == rank[3]);
  }
}

TEST_CASE("draws: the batches of a validation are numbered over all ranks, and the training does not see them") {
  const auto validated = [](Drawing& own, int64_t rows, int64_t attempt) {
    const auto data = std::make_shared<TensorDataset>(at::ones({rows, 1}), at::zeros({rows}, at::kLong), 1);
    Loader loader(data, Pipeline(), LoaderOptions{.batch_size = 2});
    std::atomic<bool> stop = false;
    std::optional<FailedWindow> failed;
    npu_train::detail::Evaluation evaluation({.task = own.task,
                                              .precision = *own.precision,
                                              .average = nullptr,
                                              .strategy = *own.strategy,
                                              .device = Device{},
                                              .stop = stop,
                                              .failed = failed});
    own.task.drawn.clear();
    evaluation.run(loader, {.attempt = attempt});
    return own.task.drawn;
  };
  const PortableRandom random(kDrawSeed);
  Drawing one;
  const auto position = PortableRandom::position();
  const auto expected = validated(one, 8, 5);
  REQUIRE(expected.size() == 4);
  CHECK(validated(one, 8, 5) == expected);
  CHECK(validated(one, 8, 6) != expected);
  CHECK((PortableRandom::position() == position));
  const auto exchange = std::make_shared<Exchange>(2);
  std::vector<DrawnNumbers> found(2);
  on_ranks(*exchange, [&](int rank) {
    const PortableRandom same(kDrawSeed);
    Drawing own(make_rank(exchange, rank, /*sharded=*/false));
    found[static_cast<size_t>(rank)] = validated(own, 4, 5);
  });
  CHECK(found[0] == DrawnNumbers{expected[0], expected[2]});
  CHECK(found[1] == DrawnNumbers{expected[1], expected[3]});
}

TEST_CASE("draws: a resumed run draws what it would have drawn, also from a checkpoint inside an epoch") {
  const TrainerOptions options{.max_epochs = 2};
  const auto run = [&](int64_t stop_at) {
    const PortableRandom random(kDrawSeed);
    auto first = dropout_toy("32-true", /*recompute=*/false);
    auto loop = first->loop({.max_epochs = 2, .max_steps = stop_at});
    loop->fit();
    if (stop_at < 0) return weights(*first);
    const auto saved = snapshot(*loop);
    const PortableRandom fresh(kDrawSeed);
    PortableRandom::uniform({4}, at::kCPU);
    auto second = dropout_toy("32-true", /*recompute=*/false);
    auto resumed = second->loop(options);
    resumed->load_state(saved);
    resumed->fit();
    return weights(*second);
  };
  const auto expected = run(-1);
  CHECK(run(3) == expected);
  CHECK(run(5) == expected);
}
