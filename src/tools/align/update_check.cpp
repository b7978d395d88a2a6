#include "tools/align/update_check.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "npu_train/core/median.hpp"
#include "npu_train/core/text.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/divergence_walk.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;

constexpr double kLeastMove = 1e-5;  // largest change of fp32 statistics that may be rounding
constexpr size_t kLeast = 3;         // number of parameters that a verdict needs
constexpr double kUnknown = 0.3;     // largest allowed difference of an update, as a share of it, if the gradients are unknown

bool is_weight(const CallComparison& call, const ItemComparison& item) {
  return two_sided(call) && in_forward(call) && item.side == "parameters" && !is_moved(item) &&
         (item.kind == Kind::Tensor || item.kind == Kind::Statistics) && item.item_a.max && item.item_b.max && std::isfinite(item.error);
}

// Returns the largest difference of an update, as a share of it, that rounding of the gradients may cause.
double share_of_rounding(double gradient_error) { return std::clamp(30 * gradient_error, 0.02, kUnknown); }

// How far one parameter moved in each run, and the difference between the runs relative to the larger move.
struct Move {
  CallComparison* call = nullptr;
  ItemComparison* item = nullptr;
  double in_a = 0, in_b = 0, share = 0;
};

std::optional<Move> move_of(CallComparison& call, ItemComparison& item, const std::pair<DumpItem, DumpItem>& before) {
  Move out{.call = &call, .item = &item};
  out.in_a = statistics_error(item.item_a, before.first);
  out.in_b = statistics_error(item.item_b, before.second);
  const double most = std::max(out.in_a, out.in_b);
  if (!(most > kLeastMove) || !std::isfinite(most)) return std::nullopt;
  out.share = statistics_error(item.item_a, item.item_b) / most;
  return out;
}

template <class Value>
double middle_of(const std::vector<Move>& moves, Value value) {
  std::vector<double> all;
  for (const auto& move : moves) all.push_back(value(move));
  return upper_median(all);
}

void explain_update(const std::vector<Move>& moves, double ratio, Divergence& d) {
  constexpr double kAlike = 0.02;
  std::vector<double> off;
  for (const auto& move : moves) off.push_back(std::abs(move.in_a / std::max(move.in_b, 1e-30) - ratio));
  if (ratio > 0 && std::abs(ratio - 1) > kAlike && upper_median(off) <= kAlike * ratio)
    say(d, "update_rate", {error_text(ratio)});
  else
    say(d, "update_options");
}

}  // namespace

std::optional<double> UpdateCheck::judge(StepComparison& step) {
  Weights weights;
  std::vector<Move> moves;
  std::vector<double> gradients;
  double apart = 0;
  bool has_optimizer = false;
  for (auto& call : step.calls) {
    has_optimizer |= two_sided(call) && of_optimizer(call);
    if (two_sided(call) && call.direction == "parameters_grad" && std::isfinite(call.output_error)) gradients.push_back(call.output_error);
    for (auto& item : call.items) {
      if (!is_weight(call, item)) continue;
      const auto before = weights_.find(item.a);
      const bool known = before != weights_.end() && before_ >= 0 && before_ + 1 == step.step;
      if (auto move = known ? move_of(call, item, before->second) : std::nullopt) moves.push_back(*move);
      apart = std::max(apart, item.error);
      weights.emplace(item.a, std::pair(item.item_a, item.item_b));
    }
  }
  const double limit = share_of_rounding(gradient_error_);
  const double share = moves.size() < kLeast ? 0 : middle_of(moves, [](const Move& m) { return m.share; });
  if (share > limit) {
    const auto first = std::find_if(moves.begin(), moves.end(), [&](const Move& m) { return m.share > limit; });
    auto d = divergence_at(step, *first->call);
    d.cause = Divergence::Cause::Optimizer;
    d.step = step.step - 1;
    d.layer = "optimizer";
    d.type = "update";
    d.input_error = gradient_error_;
    d.output_error = share;
    d.sentence = "the optimizer's update after step " + std::to_string(d.step) + " differs by " + error_text(share) +
                 " of its size in half of the parameters or more, although the gradients agree: " + first->item->a + " moved by " +
                 error_text(first->in_a) + " in A and by " + error_text(first->in_b) + " in B";
    explain_update(moves, middle_of(moves, [](const Move& m) { return m.in_a / std::max(m.in_b, 1e-30); }), d);
    for (auto& move : moves) {
      if (move.share <= limit || move.item->failed) continue;
      move.item->failed = move.call->failed = true;
      move.item->message = "the update before it differs";
      ++step.failed;
    }
    step.update = std::move(d);
  }
  const bool known = moves.size() >= kLeast;
  before_ = has_optimizer ? -1 : step.step;
  weights_ = std::move(weights);
  gradient_error_ = gradients.empty() ? 1 : upper_median(gradients);
  return known ? std::optional(apart) : std::nullopt;
}

}  // namespace npu_train::detail
