// Metrics with counts of their own, compared with a plain count over all data, for batches, accumulation and ranks that divide the data
// unevenly.
#include "testing.hpp"

#include "dist/in_process.hpp"
#include "npu_train/train/language_model.hpp"
#include "train/toy.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr int64_t kSymbols = 5, kPlaces = 7;

// Returns sequences. In every third sequence all tokens count, in the others only the last one.
std::shared_ptr<TensorDataset> sequences(int64_t count, uint64_t seed) {
  torch::manual_seed(seed);
  const auto ids = torch::randint(kSymbols, {count, kPlaces}, torch::kLong);
  auto targets = torch::randint(kSymbols, {count, kPlaces}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) targets[i].narrow(0, 0, i % 3 == 0 ? 0 : kPlaces - 1).fill_(-100);
  return std::make_shared<TensorDataset>(ids, targets);
}

// Returns the percentage of the tokens that the table predicts correctly.
double plain_count(const TensorDataset& data, const at::Tensor& table) {
  int64_t right = 0, all = 0;
  for (int64_t i = 0; i < data.size(); ++i) {
    const auto fields = data.get(i).fields;
    const auto *ids = fields[0].second.const_data_ptr<int64_t>(), *targets = fields[1].second.const_data_ptr<int64_t>();
    for (int64_t k = 0; k < kPlaces; ++k) {
      if (targets[k] == -100) continue;
      ++all;
      right += table[ids[k]].argmax().item<int64_t>() == targets[k] ? 1 : 0;
    }
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(all);
}

struct CountedRank {
  Toy toy;
  torch::nn::Embedding net{nullptr};
  std::unique_ptr<TrainLoop> loop;
  RunResult result;

  // Keeps the weights, because the learning rate is 0.
  CountedRank(const std::shared_ptr<Exchange>& exchange, int rank, int64_t accumulate, const std::vector<Metric>& metrics) {
    torch::manual_seed(2);
    net = torch::nn::Embedding(kSymbols, kSymbols);
    toy.task = language_model(as_model(net), {.metrics = metrics});
    toy.task->to(device_under_test().c10());
    toy.precision = make_precision({"32-true", {}, {}}, device_under_test());
    toy.optimizer = std::make_unique<Sgd>(toy.precision->prepare(toy.task->parameters()), SgdOptions{.lr = 0});
    if (exchange->ranks() > 1) toy.strategy = make_rank(exchange, rank, /*sharded=*/false);
    toy.optimizer->set_parameters(toy.strategy->setup(toy.optimizer->parameters()));
    toy.train = sequences(18, 8);
    toy.val = sequences(11, 9);
    toy.data = {.batch_size = 4, .shuffle = true, .seed = 7, .rank = rank, .world_size = exchange->ranks()};
    loop = toy.loop({.max_epochs = 1, .accumulate_grad_batches = accumulate, .num_sanity_val_steps = 0});
  }
};

}  // namespace

TEST_CASE("acc is the share of right tokens, however batches, accumulation and ranks divide them") {
  for (const int ranks : {1, 2, 3})
    for (const int64_t accumulate : {1, 2}) {
      CAPTURE(ranks);
      CAPTURE(accumulate);
      const auto exchange = std::make_shared<Exchange>(ranks);
      std::vector<std::unique_ptr<CountedRank>> all;
      for (int r = 0; r < ranks; ++r) all.push_back(std::make_unique<CountedRank>(exchange, r, accumulate, std::vector<Metric>{}));
      on_ranks(*exchange, [&](int r) { all[static_cast<size_t>(r)]->result = all[static_cast<size_t>(r)]->loop->fit(); });
      const auto table = all[0]->net->weight.detach().to(at::kCPU);
      for (const auto& rank : all) {
        const auto& report = rank->result.history.at(0);
        CHECK(scalar_or(report.train, "acc", -1) == doctest::Approx(plain_count(*sequences(18, 8), table)).epsilon(1e-6));
        CHECK(scalar_or(report.val, "acc", -1) == doctest::Approx(plain_count(*sequences(11, 9), table)).epsilon(1e-6));
      }
    }
}

TEST_CASE("metrics with counts and metrics over samples in one task, and a validation without anything to count") {
  const Metric pairs{.name = "pairs",
                     .sums = [](const StepOutput&, const Batch& batch) { return batch.input().narrow(1, 0, 2).sum(); },
                     .counts = [](const StepOutput&, const Batch& batch) { return torch::full({1}, 2.0 * batch.size); }};
  const Metric never{.name = "never",
                     .sums = [](const StepOutput&, const Batch&) { return torch::zeros({}); },
                     .counts = [](const StepOutput&, const Batch&) { return torch::zeros({}); }};
  const Metric samples{.name = "samples", .sums = [](const StepOutput&, const Batch& batch) { return torch::full({}, 3.0 * batch.size); }};
  const auto exchange = std::make_shared<Exchange>(1);
  CountedRank one(exchange, 0, 2, {pairs, samples, never});
  const auto report = one.loop->fit().history.at(0);
  double sum = 0;
  const auto data = sequences(18, 8);
  for (int64_t i = 0; i < data->size(); ++i) sum += data->get(i).fields[0].second.narrow(0, 0, 2).sum().item<double>();
  CHECK(scalar_or(report.train, "pairs", -1) == doctest::Approx(sum / 36).epsilon(1e-6));
  CHECK(scalar_or(report.train, "samples", -1) == 3);
  CHECK(scalar_or(report.val, "samples", -1) == 3);
  CHECK(std::isnan(scalar_or(report.val, "never", -1)));
  CHECK(error_of([] {
          task(as_model(torch::nn::Embedding(2, 2)), {}, {{.name = "x", .counts = [](const auto&, const auto&) { return at::Tensor(); }}});
        }).kind() == ErrorKind::Usage);
}

TEST_CASE("a step reports what each of its metrics is a mean over") {
  const auto exchange = std::make_shared<Exchange>(1);
  CountedRank one(exchange, 0, 1, {});
  const auto data = sequences(18, 8);
  const auto one_sample = [&](int64_t i) {
    const auto fields = data->get(i).fields;
    return to_device(Batch(fields[0].second.unsqueeze(0), fields[1].second.unsqueeze(0)), device_under_test());
  };
  const auto report = one.loop->train_step({one_sample(0), one_sample(1)});
  REQUIRE(report.metrics.size() == 3);
  CHECK(report.metrics[1].first == "acc");
  CHECK(report.counts == std::vector<double>{kPlaces + 1, kPlaces + 1, kPlaces + 1});
}
