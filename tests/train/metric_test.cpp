#include "testing.hpp"

#include "npu_train/train/metric.hpp"

#include <torch/types.h>

#include "npu_train/core/error.hpp"

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
