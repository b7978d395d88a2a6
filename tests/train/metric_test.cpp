#include "testing.hpp"

#include <torch/types.h>

#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/train/contrastive.hpp"
#include "npu_train/train/language_model.hpp"
#include "npu_train/train/metric.hpp"
#include "toy.hpp"

using namespace npu_train;

using npu_train::testing::error_of;

namespace {

double metric_of(const Metric& metric, const at::Tensor& output, const Batch& batch) {
  return metric.sums({.loss = {}, .weight = 1, .outputs = output}, batch).item<double>();
}

}  // namespace

TEST_CASE("accuracy counts ties against the class, and leaves masked samples out") {
  const auto logits = torch::tensor({{3.f, 1.f, 2.f, 0.f}, {1.f, 1.f, 0.f, 0.f}, {0.f, 1.f, 2.f, 3.f}});
  Batch batch(logits, torch::tensor({0, 0, 1}));
  CHECK(accuracy(1).name == "acc1");
  CHECK(metric_of(accuracy(1), logits, batch) == 100);
  CHECK(metric_of(accuracy(2), logits, batch) == 200);
  CHECK(metric_of(accuracy(3), logits, batch) == 300);
  batch.set("mask", torch::tensor({0.f, 1.f, 1.f}));
  CHECK(metric_of(accuracy(2), logits, batch) == 100);
  Batch soft(logits, torch::tensor({{0.f, 0.f, 1.f, 0.f}, {1.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 1.f}}));
  CHECK(metric_of(accuracy(1), logits, soft) == 100);
  CHECK(metric_of(accuracy(4), logits * std::numeric_limits<float>::quiet_NaN(), soft) == 0);
  CHECK(error_of([] { accuracy(0); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the mean absolute error is over the elements of a sample") {
  const auto target = torch::tensor({{1.f, 2.f}, {3.f, 4.f}});
  Batch batch(target, target);
  const auto output = target + torch::tensor({{1.f, -3.f}, {0.f, 0.5f}});
  CHECK(metric_of(mean_absolute_error(), output, batch) == 2.25);
  batch.set("mask", torch::tensor({0.f, 1.f}));
  CHECK(metric_of(mean_absolute_error(), output, batch) == 0.25);
}

namespace {

// Returns the percentage of the rows of `from` whose partner is among the k most similar rows of `to`, computed by sorting.
double share_found(const at::Tensor& from, const at::Tensor& to, int64_t k) {
  const auto order = torch::matmul(from, to.t()).argsort(1, /*descending=*/true);
  const auto own = torch::arange(from.size(0)).unsqueeze(1);
  return 100 * order.narrow(1, 0, k).eq(own).any(1).to(at::kDouble).mean().item<double>();
}

}  // namespace

TEST_CASE("recalls over all pairs are those of a sort, however the pairs are divided among ranks") {
  torch::manual_seed(3);
  const auto task = contrastive(as_model(torch::nn::Sequential(torch::nn::Linear(2, 2))));
  const auto* metrics = dynamic_cast<const EpochMetrics*>(task.get());
  REQUIRE(metrics != nullptr);
  CHECK(metrics->epoch_metric_names() == task->metric_names());
  constexpr int64_t kPairs = 700;  // needs several blocks
  const auto images = torch::randn({kPairs, 8}), texts = images + 0.7 * torch::randn({kPairs, 8});
  const auto rows = torch::cat({images, texts}, 1);
  const std::vector<double> expected = {share_found(images, texts, 1), share_found(images, texts, 5), share_found(texts, images, 1),
                                        share_found(texts, images, 5)};
  CHECK(expected[0] > 5);
  CHECK(expected[0] < 60);
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{kPairs}, {300, 1, 399}}) {
    std::vector<double> sums(4);
    int64_t first = 0;
    for (const auto count : sizes) {
      const auto own = metrics->epoch_sums(rows, first, count);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += own[i];
      first += count;
    }
    for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] / kPairs == doctest::Approx(expected[i]));
  }
  const auto broken = metrics->epoch_sums(rows * NAN, 0, kPairs);
  for (const auto sum : broken) CHECK(sum == 0);
}

TEST_CASE("a task with metrics of its own has none of all samples") {
  const auto model = as_model(torch::nn::Sequential(torch::nn::Linear(2, 2)));
  const auto task = contrastive(model, {.metrics = {perplexity()}});
  CHECK(dynamic_cast<const EpochMetrics&>(*task).epoch_metric_names().empty());
  CHECK(dynamic_cast<const EpochMetrics&>(*language_model(model)).epoch_metric_names().empty());
}

TEST_CASE("a weighted mean") {
  MeanMeter m;
  CHECK(m.value() == 0);
  m.add(1, 1);
  m.add(4, 3);
  CHECK(m.value() == doctest::Approx(13.0 / 4));
  MeanMeter again;
  again.restore(m.sum(), m.weight());
  again.add(0, 4);
  CHECK(again.value() == doctest::Approx(13.0 / 8));
  again.add(std::nan(""), 0);  // weight 0 is ignored
  CHECK(again.value() == doctest::Approx(13.0 / 8));
}

TEST_CASE("metrics keep their order, also after a restore in another") {
  MetricMeter m;
  m.restore("acc1", 100, 2);
  m.restore("loss", 3, 2);
  m.add({{"loss", 0.5}, {"acc1", 100.0}}, 2);
  const auto value = m.value();
  REQUIRE(value.size() == 2);
  CHECK(value[0].first == "loss");
  CHECK(value[0].second == doctest::Approx(1.0));
  CHECK(value[1].second == doctest::Approx(75.0));
}

TEST_CASE("a metric for which nothing counted has no mean") {
  MetricMeter m;
  m.add({{"loss", 1.0}, {"generator_loss", std::nan("")}}, std::vector<double>{2, 0});
  REQUIRE(m.value().size() == 1);
  CHECK(m.value()[0].first == "loss");
  m.add({{"loss", 1.0}, {"generator_loss", 3.0}}, std::vector<double>{2, 2});
  REQUIRE(m.value().size() == 2);
  CHECK(m.value()[1].second == 3);
}

TEST_CASE("a NaN is not hidden by an average") {
  MetricMeter m;
  m.add({{"loss", 1.0}}, 1);
  m.add({{"loss", std::nan("")}}, 1);
  CHECK(std::isnan(m.value()[0].second));
}
