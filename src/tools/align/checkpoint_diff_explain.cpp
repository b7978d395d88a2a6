// The first layer whose weights differ, and the likely cause.
#include <algorithm>
#include <cmath>

#include "npu_train/tools/report/number.hpp"
#include "tools/align/checkpoint_diff_parts.hpp"
#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;
using FactMap = std::map<std::string, std::string>;

bool two_sided_layer(const CallComparison& call) { return !call.a.empty() && !call.b.empty(); }

bool is_of_model(const CallComparison& call) { return call.type != "State"; }

bool is_statistic(const ItemComparison& item) {
  return item.a.ends_with(".running_mean") || item.a.ends_with(".running_var") || item.a.ends_with(".num_batches_tracked");
}

class WeightExplainer {
 public:
  WeightExplainer(Divergence& d, const CallComparison& call, const StepComparison& step, const FactMap& a, const FactMap& b)
      : d_(d), call_(call), step_(step), facts_a_(a), facts_b_(b) {}

  void run() {
    if (missing()) return;
    sentence();
    if (shapes() || layout() || zeros() || unproven()) return;
    if (!is_of_model(call_)) return state();
    missing_bias();
    if (only_statistics()) return;
    if (other_step()) return;
    values();
  }

 private:
  void say(const std::string& likely, const std::string& advice) {
    d_.likely.push_back(likely);
    d_.advice.push_back(advice);
  }

  // Whether `fn` holds for an item that differs.
  template <class Fn>
  bool any(Fn fn) const {
    return std::any_of(call_.items.begin(), call_.items.end(), [&](const ItemComparison& i) { return i.error > 0 && fn(i); });
  }
  bool any_message(const char* part) const {
    return any([&](const ItemComparison& i) { return i.message.find(part) != std::string::npos; });
  }

  void sentence() {
    int64_t differ = 0, all = 0;
    for (const auto& call : step_.calls) {
      if (!two_sided_layer(call)) continue;
      ++all;
      differ += d_.within_tolerance ? call.parameter_error > 0 : call.failed;
    }
    const auto* worst = &call_.items.front();
    for (const auto& item : call_.items)
      if (item.error > worst->error || (worst->error == 0 && item.failed && !worst->failed)) worst = &item;
    d_.sentence = std::to_string(differ) + " of " + std::to_string(all) + " layers differ" +
                  (d_.within_tolerance ? ", all within tolerance" : "") + "; the first is " + d_.layer + ": " + worst->a +
                  (std::isinf(worst->error) || worst->error == 0 ? "" : " by " + short_number(worst->error, 3)) +
                  (worst->message.empty() ? "" : " (" + worst->message + ")");
  }

  bool missing() {
    const auto lone =
        std::find_if(call_.items.begin(), call_.items.end(), [](const auto& i) { return i.kind == Kind::OneSided && i.failed; });
    const bool more =
        std::any_of(call_.items.begin(), call_.items.end(), [](const auto& i) { return i.kind != Kind::OneSided && i.failed; });
    if (lone == call_.items.end() || more) return false;
    int64_t all = 0;
    for (const auto& call : step_.calls)
      for (const auto& item : call.items) all += item.kind == Kind::OneSided && item.failed;
    d_.sentence = (lone->a.empty() ? lone->b : lone->a) + " is in " + (lone->a.empty() ? "B" : "A") + " only" +
                  (all > 1 ? "; " + std::to_string(all - 1) + " more layers or weights exist on one side only" : "");
    say("a different network, a file with only a part of it, or different names",
        "compare the configurations of the models; --mapping FILE pairs different names, --layers compares a part");
    return true;
  }

  bool shapes() {
    const auto mismatch = std::find_if(call_.items.begin(), call_.items.end(), [](const auto& i) { return i.kind == Kind::Unmatched; });
    if (mismatch == call_.items.end()) return false;
    const auto &a = mismatch->item_a.shape, &b = mismatch->item_b.shape;
    if (any_message("transposed")) {
      say("a transposed weight", "check how this layer's weight is stored and loaded (rows and columns, HWIO or OIHW)");
    } else if (is_last() && !a.empty() && a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1)) {
      say("different classifier heads: " + std::to_string(a[0]) + " and " + std::to_string(b[0]) + " classes",
          "compare the layers before it; to compare the heads too, train or load heads of equal size");
    } else {
      say("a different network: different widths, kernels or image size", "compare the configurations of the models");
    }
    return true;
  }

  bool is_last() const {
    const CallComparison* last = nullptr;
    for (const auto& call : step_.calls)
      if (two_sided_layer(call) && is_of_model(call)) last = &call;
    for (const char* name : {"head", "fc", "classifier"})
      if (call_.layer == name || call_.layer.ends_with(std::string(".") + name)) return true;
    return last == &call_;
  }

  bool layout() {
    if (any_message("transposed")) {
      say("a transposed weight", "check how this layer's weight is stored and loaded (rows and columns)");
      return true;
    }
    if (!any_message("a different order")) return false;
    say("a permuted weight: the same values in a different order",
        "check how this layer's weight is stored: the order of channels, of query, key and value, of heads");
    return true;
  }

  bool zeros() {
    if (!any_message("all zero")) return false;
    say("a weight or bias that is zero on one side: not loaded, or not trained there",
        "check which weights were loaded and which layers are frozen");
    return true;
  }

  bool unproven() {
    if (call_.parameter_error > 0 || std::none_of(call_.items.begin(), call_.items.end(), is_nan_in_both)) return false;
    say("training diverged before either checkpoint was written", "compare earlier checkpoints, and the loss curves");
    return true;
  }

  void state() {
    say(call_.layer.starts_with("ema ") ? "a different decay or number of updates of the average"
                                        : "different gradients or betas in earlier steps, although the weights agree",
        "compare the configurations, and dumps of the last steps with data_mode optimizer");
  }

  void missing_bias() {
    const auto lacks = [](const ItemComparison& i) {
      return i.kind == Kind::OneSided && (i.a.ends_with(".bias") || i.b.ends_with(".bias"));
    };
    if (std::any_of(call_.items.begin(), call_.items.end(), lacks))
      say("a bias on one side only", "compare the layer's options (bias, a norm after it)");
  }

  bool only_statistics() {
    for (const auto& call : step_.calls)
      for (const auto& item : call.items)
        if (item.error > 0 && item.kind != Kind::OneSided && is_of_model(call) && !is_statistic(item)) return false;
    say("only BatchNorm's statistics differ: its momentum, more forward passes in training mode, or statistics that are not averaged over "
        "ranks",
        "compare momentum, gradient accumulation and checkpointing; check that validation runs in evaluation mode");
    return true;
  }

  bool other_step() {
    const auto x = facts_a_.find("global_step"), y = facts_b_.find("global_step");
    if (x == facts_a_.end() || y == facts_b_.end() || x->second == y->second) return false;
    say("checkpoints of different steps: " + x->second + " and " + y->second, "compare checkpoints of the same step");
    return true;
  }

  void values() {
    const ItemComparison* largest = nullptr;
    for (const auto& item : call_.items)
      if (item.kind == Kind::Tensor && item.error > 0 && !is_statistic(item) &&
          (largest == nullptr || item.metrics.elements > largest->metrics.elements))
        largest = &item;
    if (largest == nullptr) return;
    const double e = largest->error;
    if (std::isinf(e)) {
      say("a non-finite value on one side", "the run has diverged; compare earlier checkpoints, and the loss curves");
    } else if (largest->item_a.dtype != largest->item_b.dtype && e < 1e-2) {
      say("the same weights, rounded: " + largest->item_a.dtype + " and " + largest->item_b.dtype,
          "none: this is not a difference of the training");
    } else if (e < 1e-5) {
      say("rounding: a different order of accumulation, different kernels or hardware",
          "none, unless the difference grows with further steps");
    } else if (largest->metrics.cosine < 0.5) {
      say("different initial weights, different seeds, or weights that were not loaded", "start both from the same weights file and seed");
    } else {
      say("the same initial weights but a different training: different data, learning rate or precision, or rounding over many steps",
          "compare the loss curves (npu_tool compare A B) to find the first step that differs, then dumps of that step");
    }
  }

  Divergence& d_;
  const CallComparison& call_;
  const StepComparison& step_;
  const FactMap& facts_a_;
  const FactMap& facts_b_;
};

}  // namespace

Divergence first_difference_of(const StepComparison& step, const FactMap& facts_a, const FactMap& facts_b) {
  const auto fails = [](const CallComparison& call) { return call.failed; };
  const auto differs = [](const CallComparison& call) { return two_sided_layer(call) && call.parameter_error > 0; };
  auto found = std::find_if(step.calls.begin(), step.calls.end(), fails);
  Divergence out;
  out.within_tolerance = found == step.calls.end();
  if (out.within_tolerance) found = std::find_if(step.calls.begin(), step.calls.end(), differs);
  if (found == step.calls.end()) return {};
  out.found = true;
  out.call = found->a;
  out.layer = found->layer;
  out.type = found->type;
  out.direction = found->direction;
  out.cause = Divergence::Cause::Weights;
  out.input_error = found->parameter_error;
  WeightExplainer(out, *found, step, facts_a, facts_b).run();
  return out;
}

}  // namespace npu_train::detail
