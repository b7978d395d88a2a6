#include "testing.hpp"

#include "dist/in_process.hpp"
#include "train/callbacks/evaluation.hpp"
#include "train/toy.hpp"
#include "wrapped_task.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::Evaluation;
using npu_train::detail::OverfitBatches;

namespace {

// Its metric needs all samples: the fraction whose first input is above the mean.
struct AboveMean final : WrappedTask, EpochMetrics {
  AboveMean(std::shared_ptr<Task> task, at::IntArrayRef shape) : WrappedTask(std::move(task)), shape(shape.vec()) {}
  std::vector<std::string> epoch_metric_names() const override { return {"above"}; }
  at::Tensor epoch_rows(const StepOutput& /*output*/, const Batch& batch) const override {
    return batch.input().select(1, 0).unsqueeze(1).expand({-1, 2}).reshape(shape);
  }
  std::vector<double> epoch_sums(const at::Tensor& rows, int64_t first, int64_t count) const override {
    const auto values = rows.select(1, 0);
    return {static_cast<double>(values.narrow(0, first, count).gt(values.mean()).sum().item<int64_t>())};
  }
  std::vector<int64_t> shape;
};

struct Evaluated {
  // `shape` is that of the rows of epoch metrics; empty: there are none.
  explicit Evaluated(std::shared_ptr<Strategy> strategy = std::make_shared<SingleDeviceStrategy>(), std::vector<int64_t> shape = {})
      : task(shape.empty() ? toy.task : std::make_shared<AboveMean>(toy.task, std::move(shape))),
        strategy(std::move(strategy)),
        loader(toy.val, Pipeline(),  // gives 3 batches to one process
               {.batch_size = 8, .rank = this->strategy->ranks().rank(), .world_size = this->strategy->ranks().size()}) {}
  Toy toy;
  std::shared_ptr<Task> task;
  std::shared_ptr<Strategy> strategy;
  Loader loader;
  std::atomic<bool> stop = false;
  std::optional<FailedWindow> failed;
  Evaluation evaluation{{.task = *task,
                         .precision = *toy.precision,
                         .average = nullptr,
                         .strategy = *strategy,
                         .device = device_under_test(),
                         .stop = stop,
                         .failed = failed}};
};

struct RankOutcome {
  std::vector<std::optional<Error>> errors;
  std::vector<double> above{-1, -1};
};

// Validates on two ranks. Each has a limit of batches and a shape of rows.
RankOutcome validate_on_ranks(const std::vector<int64_t>& limits, const std::vector<std::vector<int64_t>>& shapes) {
  const auto exchange = std::make_shared<Exchange>(2);
  RankOutcome out;
  std::vector<std::unique_ptr<Evaluated>> ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Evaluated>(make_rank(exchange, r, false), shapes[static_cast<size_t>(r)]));
  out.errors = errors_of_ranks(*exchange, [&](int r) {
    auto& rank = *ranks[static_cast<size_t>(r)];
    Evaluation::Options options;
    options.limit = limits[static_cast<size_t>(r)];
    out.above[static_cast<size_t>(r)] = scalar_or(*rank.evaluation.run(rank.loader, options), "above", -1);
  });
  return out;
}

}  // namespace

TEST_CASE("a validation averages over samples, in evaluation mode, and puts the mode of training back") {
  Evaluated e;
  std::vector<int64_t> done;
  Evaluation::Options options;
  options.on_batch = [&](int64_t k, std::optional<int64_t> total) {
    done.push_back(k);
    CHECK(total == 3);
    CHECK_FALSE(e.toy.net->is_training());
  };
  const auto found = e.evaluation.run(e.loader, options);
  REQUIRE(found);
  CHECK(done == std::vector<int64_t>{1, 2, 3});
  CHECK(e.toy.net->is_training());
  const auto data = std::dynamic_pointer_cast<TensorDataset>(e.toy.val);
  const auto logits =
      e.evaluation.predict(Batch(data->inputs(), data->targets()), [&](const Batch& b) { return e.toy.task->forward(b); }).first();
  CHECK(scalar_or(*found, "loss", 0) == doctest::Approx(torch::cross_entropy_loss(logits, data->targets()).item<double>()).epsilon(1e-5));
  CHECK(scalar_or(*found, "acc1", -1) ==
        doctest::Approx(100 * logits.argmax(1).eq(data->targets()).to(torch::kDouble).mean().item<double>()));
}

TEST_CASE("a limit, a stop, and the batches of overfit_batches") {
  Evaluated e;
  const auto samples = [&](Evaluation::Options options) {
    int64_t batches = 0;
    options.on_batch = [&](int64_t, std::optional<int64_t>) { ++batches; };
    const auto found = e.evaluation.run(e.loader, options);
    return found ? batches : -1;
  };
  CHECK(samples({.limit = 2}) == 2);
  CHECK(error_of([&] { samples({.limit = 0}); }).kind() == ErrorKind::Data);
  OverfitBatches overfit(2);
  Loader train(e.toy.train, Pipeline(), LoaderOptions{.batch_size = 8});
  CHECK(samples({.overfit = &overfit, .train_loader = &train}) == 2);
  CHECK(overfit.size() == 2);
  e.stop = true;
  CHECK(samples({.stoppable = true}) == -1);
  CHECK(samples({}) == 3);
  CHECK(e.toy.net->is_training());
}

TEST_CASE("a metric that needs all samples: ranks find the value of one process, also if one of them has no sample") {
  Evaluated one(std::make_shared<SingleDeviceStrategy>(), {-1, 2});
  const double of_one = scalar_or(*one.evaluation.run(one.loader, {}), "above", -1);
  const auto all = validate_on_ranks({-1, -1}, {{-1, 2}, {-1, 2}});
  CHECK(all.above == std::vector<double>(2, of_one));
  CHECK((all.above[0] > 0.2 && all.above[0] < 0.8));
  const auto half = validate_on_ranks({0, -1}, {{-1, 2}, {-1, 2}});
  CHECK(half.above[0] == half.above[1]);
  const auto x = std::dynamic_pointer_cast<TensorDataset>(one.toy.val)->inputs().select(1, 0).slice(0, 8, 16);  // the second batch
  CHECK(half.above[0] == doctest::Approx(x.gt(x.mean()).to(at::kDouble).mean().item<double>()));
}

TEST_CASE("rows of epoch metrics with other columns, or without columns, are refused") {
  // The 12 rows of the first rank have 96 bytes, which are not rows of 16 numbers.
  const auto differ = validate_on_ranks({-1, -1}, {{-1, 2}, {-1, 16}});
  REQUIRE(differ.errors[1]);
  CHECK(differ.errors[1]->kind() == ErrorKind::Peer);
  CHECK(has(differ.errors[1]->what(), "rank 0 gave 96 bytes"));
  const auto flat = validate_on_ranks({-1, -1}, {{-1}, {-1}});
  REQUIRE(flat.errors[1]);
  CHECK(flat.errors[1]->kind() == ErrorKind::Usage);
  CHECK(has(flat.errors[1]->what(), "allowed: [samples, columns]"));
}
