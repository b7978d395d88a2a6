// Finds the first layer whose weights differ, and the likely cause.
#include <algorithm>
#include <cmath>

#include "npu_train/tools/report/report.hpp"
#include "tools/align/causes.hpp"
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
    if (!is_of_model(call_)) {
      say(call_.layer.starts_with("ema ") ? "saved_average" : "saved_state");
      return;
    }
    missing_bias();
    if (!only_statistics() && !other_step()) values();
  }

 private:
  // Adds a row of causes.tsv to the finding. Returns true.
  bool say(const char* cause, const std::vector<std::string>& values = {}) {
    detail::say(d_, cause, values);
    return true;
  }

  // Whether `fn` returns true for any item that differs.
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
    return say("saved_network");
  }

  bool shapes() {
    const auto mismatch = std::find_if(call_.items.begin(), call_.items.end(), [](const auto& i) { return i.kind == Kind::Unmatched; });
    if (mismatch == call_.items.end()) return false;
    const auto &a = mismatch->item_a.shape, &b = mismatch->item_b.shape;
    if (any_message("transposed")) return say("saved_transposed");
    if (is_last() && !a.empty() && a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1))
      return say("saved_heads", {std::to_string(a[0]), std::to_string(b[0])});
    return say("saved_widths");
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
    if (any_message("transposed")) return say("saved_rows");
    return any_message("a different order") && say("saved_permuted");
  }

  bool zeros() { return any_message("all zero") && say("saved_zero"); }

  bool unproven() {
    return !(call_.parameter_error > 0) && std::any_of(call_.items.begin(), call_.items.end(), is_nan_in_both) && say("saved_nan");
  }

  void missing_bias() {
    const auto lacks = [](const ItemComparison& i) {
      return i.kind == Kind::OneSided && (i.a.ends_with(".bias") || i.b.ends_with(".bias"));
    };
    if (std::any_of(call_.items.begin(), call_.items.end(), lacks)) say("saved_bias");
  }

  bool only_statistics() {
    for (const auto& call : step_.calls)
      for (const auto& item : call.items)
        if (item.error > 0 && item.kind != Kind::OneSided && is_of_model(call) && !is_statistic(item)) return false;
    return say("saved_statistics");
  }

  bool other_step() {
    const auto x = facts_a_.find("global_step"), y = facts_b_.find("global_step");
    return x != facts_a_.end() && y != facts_b_.end() && x->second != y->second && say("saved_steps", {x->second, y->second});
  }

  void values() {
    const ItemComparison* largest = nullptr;
    for (const auto& item : call_.items)
      if (item.kind == Kind::Tensor && item.error > 0 && !is_statistic(item) &&
          (largest == nullptr || item.metrics.elements > largest->metrics.elements))
        largest = &item;
    if (largest == nullptr) return;
    const double e = largest->error;
    if (!std::isinf(e) && largest->item_a.dtype != largest->item_b.dtype && e < 1e-2)
      say("saved_rounded", {largest->item_a.dtype, largest->item_b.dtype});
    else
      say(std::isinf(e)                   ? "saved_not_finite"
          : e < 1e-5                      ? "saved_rounding"
          : largest->metrics.cosine < 0.5 ? "saved_initial"
                                          : "saved_training");
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
