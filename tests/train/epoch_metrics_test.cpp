#include "testing.hpp"

#include "npu_train/train/epoch_metrics.hpp"

#include "npu_train/train/contrastive.hpp"
#include "npu_train/train/language_model.hpp"
#include "toy.hpp"

using namespace npu_train;

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
