// Handles values whose difference has no size: non-finite values, and values with different shapes or kinds.
#include <algorithm>
#include <cmath>
#include <utility>

#include "npu_train/core/text.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/divergence_walk.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;

bool has_values(const ItemComparison& item) { return item.kind == Kind::Tensor || item.kind == Kind::Statistics; }

bool has_nan(const ItemComparison& item, bool in_a) {
  if (item.kind == Kind::Tensor && (in_a ? item.metrics.nan_a : item.metrics.nan_b) > 0) return true;
  const auto& max = in_a ? item.item_a.max : item.item_b.max;
  return has_values(item) && (item.kind == Kind::Statistics || item.partial) && max && std::isnan(*max);
}

// The results of a step. If they contain no NaN, then a NaN in another value was masked, or the step is one that the loss scale skips.
struct Results {
  bool finite_loss = false, gradients = true;  // gradients: whether the gradients of the parameters contain no NaN
  bool scaled = false;
};

Results results_of(const StepComparison& step, const DumpStep& a, const DumpStep& b) {
  const auto scaled = [](const DumpStep& s) {
    const auto scale = fact_of(s, "loss_scale");
    return !scale.empty() && decimal_number(scale).value_or(0) != 1;
  };
  Results out{.scaled = scaled(a) && scaled(b)};
  bool any_loss = false, any_gradient = false, infinite_loss = false;
  for (const auto& call : step.calls)
    for (const auto& item : call.items) {
      if (!two_sided(call) || !has_values(item)) continue;
      const bool loss = of_loss(call) && call.direction == "forward" && item.side == "output";
      any_loss |= loss;
      infinite_loss |= loss && (!is_finite(item, true) || !is_finite(item, false));
      if (call.direction != "parameters_grad") continue;
      any_gradient = true;
      out.gradients &= !is_nan_in_both(item);
    }
  out.finite_loss = any_loss && !infinite_loss;
  out.gradients &= any_gradient;
  return out;
}

// Whether a value that is NaN on both sides propagates to the result of the step, so that the agreement proves nothing.
bool is_unproven(const CallComparison& call, const ItemComparison& item, const Results& results) {
  if (!two_sided(call) || !has_values(item)) return false;
  if (of_loss(call) && call.direction == "forward" && item.side == "output")
    return item.error == 0 && !is_finite(item, true) && !is_finite(item, false);
  if (!is_nan_in_both(item)) return false;
  if (of_optimizer(call) || item.side == "parameters") return true;
  if (call.direction == "forward") return !results.finite_loss;
  return !results.scaled && !(call.direction == "backward" && results.gradients);
}

}  // namespace

bool is_finite(const ItemComparison& item, bool in_a) {
  const auto& m = item.metrics;
  if (item.kind == Kind::Tensor) {
    const bool in_values = (in_a ? m.nan_a + m.inf_a : m.nan_b + m.inf_b) > 0;
    if (in_values || !item.partial) return !in_values;
  }
  const auto& i = in_a ? item.item_a : item.item_b;
  const auto fine = [](const std::optional<double>& v) { return !v || std::isfinite(*v); };
  return fine(i.max) && fine(i.min) && fine(i.mean) && fine(i.norm);
}

bool is_nan_in_both(const ItemComparison& item) { return has_nan(item, true) && has_nan(item, false); }

std::string not_finite_text(const ItemComparison& item) {
  const bool a = !is_finite(item, true), b = !is_finite(item, false);
  return a && b ? "not finite, at different places in A and B" : std::string("not finite in ") + (a ? "A" : "B") + " only";
}

std::string apart_text(double error, const CallComparison& call, const std::string& side, bool many) {
  if (!std::isinf(error)) return std::string(many ? "differ" : "differs") + " by " + error_text(error);
  const auto endless = [](const ItemComparison& i) { return i.kind != Kind::OneSided && std::isinf(i.error); };
  auto found = std::find_if(call.items.begin(), call.items.end(), [&](const auto& i) { return endless(i) && i.side == side; });
  if (found == call.items.end()) found = std::find_if(call.items.begin(), call.items.end(), endless);
  const std::string is = many ? "are " : "is ";
  if (found == call.items.end()) return is + "not finite or differently shaped in a call inside it";
  if (found->kind == Kind::Value) return is + "different values: " + found->item_a.value + " and " + found->item_b.value;
  if (found->kind != Kind::Unmatched) return is + not_finite_text(*found);
  if (!found->item_a.is_tensor() || !found->item_b.is_tensor())
    return is + "a tensor in " + (found->item_a.is_tensor() ? "A" : "B") + " only";
  return is + "differently shaped (" + shape_of(found->item_a) + " and " + shape_of(found->item_b) + ")";
}

void fail_unproven(StepComparison& step, const DumpStep& a, const DumpStep& b) {
  const auto results = results_of(step, a, b);
  for (auto& call : step.calls)
    for (auto& item : call.items) {
      if (item.failed || !is_unproven(call, item, results)) continue;
      item.failed = item.unproven = call.failed = true;
      item.message = std::string(is_nan_in_both(item) ? "NaN" : "not finite") + " on both sides, which proves nothing";
      ++step.failed;
      ++step.unproven;
      step.rounding -= std::exchange(item.rounding, false);
    }
}

Divergence first_unproven(const StepComparison& step) {
  for (const auto& call : step.calls)
    for (const auto& item : call.items) {
      if (!item.unproven) continue;
      auto d = divergence_at(step, call);
      d.cause = Divergence::Cause::NotProven;
      const bool given = item.side == "input" && call.direction == "forward", weights = item.side == "parameters";
      const bool gradient = call.direction != "forward";
      d.sentence = std::string("both runs have ") + (is_nan_in_both(item) ? "NaN" : "a non-finite loss") + " from the " +
                   (gradient  ? "gradients"
                    : given   ? "input"
                    : weights ? "weights"
                              : "output") +
                   " of " + place_of(d) + " on: values that are not finite on both sides prove nothing";
      say(d, given ? "nan_input" : weights ? "nan_weight" : "nan_output");
      return d;
    }
  return {};
}

}  // namespace npu_train::detail
