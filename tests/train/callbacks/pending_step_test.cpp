#include "testing.hpp"

#include <torch/types.h>

#include "train/callbacks/pending_step.hpp"

using namespace npu_train;
using npu_train::detail::PendingStep;

TEST_CASE("the packed numbers of a step: loss by weight, metrics by their counts, gradient norm last") {
  PendingStep pending;
  pending.report.attempt = 4;
  pending.report.lr = 0.5;
  pending.take({.packed = torch::tensor({3.0f, 4.0f, 2.0f, 8.0f, 16.0f, 9.0f}), .loss_weight = 2, .weight = 5, .samples = 8});
  const auto report = pending.read({"acc1", "acc5"});
  CHECK(report.metrics == Scalars{{"loss", 1.5}, {"acc1", 0.5}, {"acc5", 0.125}});
  CHECK(report.counts == std::vector<double>{5, 8, 16});
  CHECK(report.grad_norm == 9);
  CHECK(report.attempt == 4);
  CHECK(report.lr == 0.5);
  CHECK(pending.report.metrics.empty());
}
