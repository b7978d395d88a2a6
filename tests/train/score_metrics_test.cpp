#include "testing.hpp"

#include "npu_train/train/metric.hpp"

#include <cmath>

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Batch with_targets(const at::Tensor& target) {
  Batch out;
  out.set("target", target);
  out.size = target.size(0);
  out.weight = static_cast<double>(out.size);
  return out;
}

double value_of(const Metric& metric, const at::Tensor& outputs, const at::Tensor& target) {
  return metric.of_rows(metric.rows(StepOutput{{}, 0, Outputs(outputs)}, with_targets(target)));
}

at::Tensor logits() {
  return at::tensor({2.F, 1.F, 0.F, 0.5F, 0.25F, 0.F, 0.F, 3.F, 1.F, 0.F, 1.F, 2.F, 1.F, 2.F, 2.F, 4.F, 0.F, 1.F}).reshape({6, 3});
}

}  // namespace

// The expected values are from scikit-learn 1.7 for the same numbers; tests/apps/image_data_test.py compares whole trainings.
TEST_CASE("scores of a classification are those of scikit-learn") {
  const auto target = at::tensor({0, 1, 1, 2, 2, 0}, at::kLong);
  CHECK(value_of(class_score(ClassScore::Precision), logits(), target) == doctest::Approx((2. / 3 + 0.5 + 1) / 3));
  CHECK(value_of(class_score(ClassScore::Recall), logits(), target) == doctest::Approx((1 + 0.5 + 0.5) / 3));
  CHECK(value_of(class_score(ClassScore::F1), logits(), target) == doctest::Approx((0.8 + 0.5 + 2. / 3) / 3));
  CHECK(value_of(class_score(ClassScore::F1, ScoreAverage::Micro), logits(), target) == doctest::Approx(4. / 6));
  CHECK(value_of(class_score(ClassScore::F1, 0), logits(), target) == doctest::Approx(0.8));
  CHECK(has(error_of([&] { value_of(class_score(ClassScore::F1, 3), logits(), target); }).what(), "allowed: 0 to 2"));
}

TEST_CASE("a class that does not occur counts for nothing, and a divisor of 0 gives 0") {
  const auto two = at::tensor({1.F, 0.F, 0.F, 1.F, 0.F, 0.F}).reshape({2, 3});
  CHECK(value_of(class_score(ClassScore::F1), two, at::tensor({0, 1}, at::kLong)) == doctest::Approx(1. / 3));
  CHECK(value_of(class_score(ClassScore::Precision, 1), two, at::tensor({0, 1}, at::kLong)) == 0);
  CHECK(std::isnan(value_of(auroc(), two, at::tensor({0, 0}, at::kLong))));
}

TEST_CASE("tied scores count half in the area under the curve") {
  const auto tied = at::tensor({0.F, 1.F, 0.F, 1.F, 0.F, 1.F, 0.F, 1.F}).reshape({4, 2});
  CHECK(value_of(auroc(), tied, at::tensor({0, 1, 1, 0}, at::kLong)) == 0.5);
  const auto ordered = at::tensor({4.F, 3.F, 2.F, 1.F}).reshape({4, 1});
  const auto labels = at::tensor({1.F, 0.F, 1.F, 0.F}).reshape({4, 1});
  CHECK(value_of(auroc(), ordered, labels) == 0.75);
  CHECK(value_of(mean_average_precision(), ordered, labels) == doctest::Approx((1 + 2. / 3) / 2));
}

TEST_CASE("the calibration error compares confidence and correctness in each bin") {
  const auto sure = at::tensor({0.F, std::log(3.F), 0.F, std::log(3.F), 0.F, std::log(3.F), 0.F, std::log(3.F)}).reshape({4, 2});
  CHECK(value_of(calibration_error(), sure, at::tensor({1, 1, 1, 0}, at::kLong)) == doctest::Approx(0).epsilon(1e-6));
  CHECK(value_of(calibration_error(4), sure, at::tensor({1, 0, 0, 0}, at::kLong)) == doctest::Approx(0.5));
}

TEST_CASE("errors of a regression") {
  const auto output = at::tensor({1.F, 2.F, 4.F}).reshape({3, 1}), target = at::tensor({1.F, 3.F, 2.F}).reshape({3, 1});
  CHECK(value_of(root_mean_squared_error(), output, target) == doctest::Approx(std::sqrt(5. / 3)));
  CHECK(value_of(r2_score(), output, target) == doctest::Approx(1 - 5. / 2));
  CHECK(value_of(r2_score(), output, output) == 1);
}

TEST_CASE("padding has no rows") {
  auto batch = with_targets(at::tensor({0, 1, 1, 2, 2, 0}, at::kLong));
  batch.size = 4;
  const auto rows = class_score(ClassScore::F1).rows(StepOutput{{}, 0, Outputs(logits())}, batch);
  CHECK(rows.sizes() == at::IntArrayRef({4, 6}));
}
