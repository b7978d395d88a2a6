// Computes proportional tolerances from the error that a precision causes in a value, measured with a third run in fp32.
#include <algorithm>
#include <cmath>

#include "tools/align/divergence_walk.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;

// Returns the group of a value. A low precision causes similar errors in all values of a group.
std::string group_of(const ItemComparison& item, const CallComparison& call) {
  return (of_optimizer(call) ? "optimizer" : call.direction) + " " + item.side;
}

// Whether the cost of an item is the worst error of its group, instead of its own error. A single error does not measure the precision:
// statistics may agree by chance, and an optimizer turns negligible gradients into full steps.
bool by_group(const ItemComparison& item, const CallComparison& call) {
  return item.kind == Kind::Statistics || of_optimizer(call) || item.side == "parameters";
}

}  // namespace

void ItemJudge::learn_costs(const StepComparison& step) {
  for (const auto& call : step.calls)
    for (const auto& item : call.items)
      if (auto& cost = costs_[group_of(item, call)]; std::isfinite(item.reference_error_b)) cost = std::max(cost, item.reference_error_b);
}

double ItemJudge::cost_of(const ItemComparison& item, const CallComparison& call) const {
  constexpr double kMost = 0.1;  // larger errors do not grow in proportion
  constexpr double kEpsilons[] = {0x1p-8, 0x1p-11, 0x1p-24, 0x1p-53, 1};
  const auto group = costs_.find(group_of(item, call));
  const double cost = by_group(item, call) && group != costs_.end() ? group->second : item.reference_error_b;
  // Uses the dtypes of the runs, so that a single layer with another dtype does not count.
  const double times = kEpsilons[fineness(dtype_a_)] / kEpsilons[fineness(dtype_b_)];
  return std::max(cost, std::min(kMost, times * cost));
}

}  // namespace npu_train::detail
