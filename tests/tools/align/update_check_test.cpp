#include "tools/align/update_check.hpp"

#include "testing.hpp"

#include <cmath>

using namespace npu_train;
using npu_train::detail::UpdateCheck;
using npu_train::testing::has;

namespace {

DumpItem weight(double mean, double norm) {
  return {.name = "w",
          .side = "parameters",
          .dtype = "torch.float32",
          .shape = {100},
          .max = norm / 3,
          .min = -norm / 3,
          .mean = mean,
          .norm = norm};
}

// Returns a step of layers whose weights have these means in A and B, and whose gradients differ by `gradient`.
StepComparison step_of(int64_t number, const std::vector<std::pair<double, double>>& means, double gradient = 1e-5) {
  StepComparison step{.step = number, .rank = "rank0"};
  for (size_t i = 0; i < means.size(); ++i) {
    const auto name = "Module.l" + std::to_string(i) + ".Linear.";
    CallComparison call{
        .a = name + "forward.0", .b = name + "forward.0", .layer = "l" + std::to_string(i), .type = "Linear", .direction = "forward"};
    ItemComparison item{.a = name + "forward.0.parameters.weight", .b = name + "forward.0.parameters.weight", .side = "parameters"};
    item.kind = ItemComparison::Kind::Statistics;
    item.item_a = weight(means[i].first, 10), item.item_b = weight(means[i].second, 10);
    item.error = std::abs(means[i].first - means[i].second);
    call.items.push_back(item);
    step.calls.push_back(call);
    step.calls.push_back({.a = name + "parameters_grad.0",
                          .b = name + "parameters_grad.0",
                          .layer = call.layer,
                          .type = "Linear",
                          .direction = "parameters_grad",
                          .output_error = gradient});
  }
  return step;
}

}  // namespace

TEST_CASE("weights that move alike, apart from rounding, leave a known error") {
  UpdateCheck check;
  auto first = step_of(0, {{0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}}), second = step_of(1, {{0.2, 0.20001}, {0.1, 0.1}, {0.4, 0.4}});
  CHECK_FALSE(check.judge(first));
  const auto drift = check.judge(second);
  REQUIRE(drift);
  CHECK(*drift == doctest::Approx(1e-5));
  CHECK_FALSE(second.update.found);
  CHECK(second.failed == 0);
}

TEST_CASE("another learning rate is found with its factor, and fails the weights that show it") {
  UpdateCheck check;
  auto first = step_of(0, {{0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}}), second = step_of(1, {{0.2, 0.3}, {0.1, 0.0}, {0.4, 0.5}});
  check.judge(first);
  check.judge(second);
  REQUIRE(second.update.found);
  CHECK((second.update.cause == Divergence::Cause::Optimizer));
  CHECK(second.update.step == 0);
  CHECK(has(second.update.sentence, "the optimizer's update after step 0 differs"));
  CHECK(has(second.update.likely.at(0), "A's updates are 0.5 times B's"));
  CHECK(second.failed == 3);
  // updates that differ in another way
  UpdateCheck other;
  first = step_of(0, {{0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}}), second = step_of(1, {{0.2, 0.3}, {0.1, 0.15}, {0.4, 0.33}});
  other.judge(first);
  other.judge(second);
  REQUIRE(second.update.found);
  CHECK(has(second.update.likely.at(0), "momentum"));
}

TEST_CASE("gradients that differ, a single parameter and steps that are not consecutive prove no other update") {
  const auto found = [](int64_t step, const std::vector<std::pair<double, double>>& before,
                        const std::vector<std::pair<double, double>>& after, double gradient) {
    UpdateCheck check;
    auto first = step_of(0, before, gradient), second = step_of(step, after, gradient);
    check.judge(first);
    check.judge(second);
    return second.update.found;
  };
  CHECK(found(1, {{0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}}, {{0.2, 0.21}, {0.1, 0.09}, {0.4, 0.41}}, 1e-6));
  CHECK_FALSE(found(1, {{0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}}, {{0.2, 0.21}, {0.1, 0.09}, {0.4, 0.41}}, 1e-2));
  CHECK_FALSE(found(1, {{0.1, 0.1}}, {{0.2, 0.3}}, 1e-6));
  CHECK_FALSE(found(2, {{0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}}, {{0.2, 0.3}, {0.1, 0.0}, {0.4, 0.5}}, 1e-6));
  CHECK_FALSE(found(1, {{0.1, 0.1}, {0.2, 0.2}, {0.3, 0.3}}, {{0.2, 0.2}, {0.1, 0.1}, {0.4, 0.6}}, 1e-6));  // one parameter of three
}
