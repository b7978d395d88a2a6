// Derives likely causes from observations.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "npu_train/core/text.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/compare_parts.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train::detail {
namespace {

using Cause = Divergence::Cause;

class Explainer {
 public:
  Explainer(Divergence& d, const CallComparison& call, const DumpStep& a, const DumpStep& b, bool has_reference)
      : d_(d), call_(call), a_(a), b_(b), has_reference_(has_reference) {}

  void run() {
    if (precisions_differ()) {
      d_.likely.insert(d_.likely.begin(),
                       "the runs use different precisions: " + fact_of(a_, "precision") + " and " + fact_of(b_, "precision"));
      if (d_.advice.empty() || has_reference_) d_.advice.insert(d_.advice.begin(), reference_advice(a_, b_, has_reference_));
    }
    if (!d_.likely.empty()) return;
    switch (d_.cause) {
      case Cause::Input:
        if (!rounded_inputs()) say(d_, "input");
        break;
      case Cause::Weights:
        weights();
        break;
      case Cause::Gradient:
        gradient();
        break;
      case Cause::Optimizer:
        optimizer();
        break;
      case Cause::Before:
        before();
        break;
      case Cause::NotFinite:
      case Cause::Layer:
        layer();
        break;
      case Cause::NotProven:
      case Cause::Model:
      case Cause::Unreadable:
        break;  // findings with these causes already contain an explanation
    }
  }

 private:
  // Whether the runs have different precisions that explain the error, so that the error is not a fault.
  bool precisions_differ() const {
    constexpr double kMost = 0.1;
    const bool numbers = d_.cause != Cause::Weights && d_.cause != Cause::Optimizer && d_.cause != Cause::NotFinite;
    const bool small = d_.output_error <= kMost && d_.input_error <= kMost;
    return numbers && differs("precision") && (small || d_.cause == Cause::Before);  // casts change the values between layers
  }

  // Detects inputs that are equal, except that one side stores them in a coarser dtype.
  bool rounded_inputs() {
    for (const auto& i : call_.items) {
      if (i.side != "input" || i.error == 0 || !i.item_a.is_tensor() || i.item_a.dtype == i.item_b.dtype) continue;
      const auto coarser = coarser_dtype(i.item_a.dtype, i.item_b.dtype);
      if (i.error > noise_of(coarser, coarser)) continue;
      say(d_, "input_rounded", {coarser, short_dtype(i.item_a), short_dtype(i.item_b), reference_advice(a_, b_, has_reference_)});
      return true;
    }
    return false;
  }

  template <class Fn>
  bool any(const char* side, Fn fn, double error = 0) const {
    return std::any_of(call_.items.begin(), call_.items.end(), [&](const ItemComparison& i) {
      return i.side == side && i.item_a.is_tensor() && i.item_b.is_tensor() && i.error > error && fn(i.item_a, i.item_b);
    });
  }
  // Returns an item on `side` whose non-finite values differ between the runs.
  const ItemComparison* not_finite(const char* side) const {
    const auto found = std::find_if(call_.items.begin(), call_.items.end(), [&](const ItemComparison& i) {
      return i.side == side && std::isinf(i.error) &&
             (i.kind == ItemComparison::Kind::Tensor || i.kind == ItemComparison::Kind::Statistics);
    });
    return found == call_.items.end() ? nullptr : &*found;
  }
  static bool all_zero(const DumpItem& i) { return i.max && i.min && *i.max == 0 && *i.min == 0; }
  static bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max({std::abs(a), std::abs(b), 1e-30}); }

  static bool one_is_zero(const DumpItem& a, const DumpItem& b) { return all_zero(a) != all_zero(b); }
  static bool same_numbers(const DumpItem& a, const DumpItem& b) {
    return a.norm && b.norm && a.max && b.max && near(*a.norm, *b.norm) && near(*a.max, *b.max) &&
           near(a.min.value_or(0), b.min.value_or(0));
  }

  void weights() {
    constexpr double kOtherOrder = 0.1;  // elements at other positions differ by their full size
    if (const auto* item = not_finite("parameters"); item != nullptr) return say(d_, "weight_not_finite", {not_finite_text(*item)});
    if (any("parameters", one_is_zero)) return say(d_, "weight_zero");
    if (any("parameters", same_numbers, kOtherOrder)) return say(d_, "weight_order");
    say(d_, d_.step > 0 ? "weight_updated" : "weight_initial");
  }

  void gradient() {
    constexpr double kOfTies = 0.1;  // a missing gradient of tied layers causes larger errors, rounding smaller ones
    if (const auto* item = not_finite("parameters_grad"); item != nullptr)
      say(d_, "gradient_not_finite", {not_finite_text(*item)});
    else
      say(d_, any("parameters_grad", one_is_zero)                             ? "gradient_zero"
              : to_lower(d_.type) == "embedding" && d_.output_error > kOfTies ? "gradient_tied"
                                                                              : "gradient_kernel");
    if (differs("loss_scale")) say(d_, "loss_scale_differs");
  }

  void optimizer() {
    const auto type = [](const std::string& name) { return name.substr(0, name.find(".forward.")); };
    if (type(call_.a) != type(call_.b)) say(d_, "optimizer_other", {call_.a, call_.b});
    for (const auto& i : call_.items) {
      if (i.kind != ItemComparison::Kind::Value || !i.failed) continue;
      const auto name = i.a.substr(std::min(i.a.size(), call_.a.size() + std::string_view(".input.").size()));
      say(d_, name == "lr" ? "optimizer_lr" : "optimizer_option", {name, number_text(i.item_a.value), number_text(i.item_b.value)});
    }
    if (!d_.likely.empty()) return;
    clipping();
    if (!d_.likely.empty()) return;
    if (has_loss_scale()) say(d_, "optimizer_skipped");
    say(d_, "optimizer_update");
  }

  // Detects different clipping from the optimizer's state, since the dumped gradients are not yet clipped.
  void clipping() {
    if (differs("gradient_clip"))
      say(d_, "clip_options", {fact_of(a_, "gradient_clip"), fact_of(b_, "gradient_clip")});
    else if (const double times = scaled_state(); times > 0)
      say(d_, "clip_norm", {shortest(std::round(times * 1e6) / 1e6)});
  }

  // Returns the ratio between the running means of gradients in A and in B, if it is the same for all parameters; 0 if it is not, or if it
  // is 1.
  double scaled_state() const {
    constexpr double kAlike = 1e-3;
    double least = std::numeric_limits<double>::infinity(), most = 0;
    int64_t n = 0;
    for (const auto& i : call_.items) {
      const bool mean = i.a.find(".exp_avg/") != std::string::npos || i.a.find(".momentum/") != std::string::npos;
      if (i.side != "output" || !mean || !i.item_a.norm || !i.item_b.norm || !(*i.item_b.norm > 0)) continue;
      const double times = *i.item_a.norm / *i.item_b.norm;
      least = std::min(least, times), most = std::max(most, times), ++n;
    }
    const bool alike = n > 1 && least > 0 && most - least <= kAlike * most;
    return alike && std::abs(most - 1) > kAlike ? most : 0;
  }

  bool has_loss_scale() const {
    const auto scaled = [](const DumpStep& step) {
      const auto scale = fact_of(step, "loss_scale");
      return scale.empty() || decimal_number(scale).value_or(0) != 1;  // dumps of other programs do not contain the scale
    };
    return scaled(a_) || scaled(b_);
  }

  static std::string number_text(const std::string& value) {
    const auto number = decimal_number(value);
    return number ? shortest(*number) : value;
  }

  void before() { say(d_, d_.direction == "backward" ? "between_backward" : "between_forward"); }

  bool differs(const char* fact) const {
    const auto x = fact_of(a_, fact), y = fact_of(b_, fact);
    return !x.empty() && !y.empty() && x != y;
  }

  // Whether the extreme of one side is a typical limit of a dtype or an operator that the other side exceeds.
  bool saturates() const {
    return any("output", [](const DumpItem& a, const DumpItem& b) {
      if (!a.max || !b.max || !a.min || !b.min) return false;
      const auto cut = [](double here, double there) {
        const double limits[] = {65504, 65535, 32767, 127, 255, 448, 6, 1};
        return std::abs(there) > std::abs(here) * 1.001 &&
               std::any_of(std::begin(limits), std::end(limits), [&](double l) { return near(std::abs(here), l); });
      };
      return cut(*a.max, *b.max) || cut(*b.max, *a.max) || cut(*a.min, *b.min) || cut(*b.min, *a.min);
    });
  }

  void layer() {
    const auto type = to_lower(d_.type);
    const auto is = [&](const char* word) { return type.find(word) != std::string::npos; };
    if (std::any_of(call_.items.begin(), call_.items.end(), [](const auto& i) { return i.kind == ItemComparison::Kind::Unmatched; }))
      return say(d_, "layer_shapes");
    if (d_.cause == Cause::NotFinite && d_.direction != "forward" && has_loss_scale()) say(d_, "layer_loss_scale");
    if (d_.cause == Cause::NotFinite) return say(d_, "layer_overflow");
    if (saturates()) say(d_, "layer_saturates");
    if (is("loss") || is("cross_entropy")) return say(d_, "layer_loss");
    if (is("norm") && differs("fused_kernels")) say(d_, "layer_fused_norm");
    if (is("batchnorm"))
      say(d_, "layer_batch_norm");
    else if (is("norm"))
      say(d_, "layer_norm");
    if (type == "layer")  // a declared layer, which has several operators
      say(d_, "layer_inside");
    if (is("dropout")) say(d_, "layer_dropout");
    if (is("attention") || is("softmax")) say(d_, "layer_attention");
    precision();
    if (is("conv"))
      say(d_, "layer_padding");
    else if (is("linear") || is("parameter"))
      say(d_, "layer_bias");
    if (d_.direction == "backward") say(d_, "layer_backward");
    if (d_.likely.empty()) say(d_, "layer_option");
  }

  void precision() {
    for (const auto& item : call_.items)
      if (item.side == "output" && item.item_a.is_tensor() && item.item_b.is_tensor() && item.item_a.dtype != item.item_b.dtype)
        return say(d_, "computes_in", {short_dtype(item.item_a), short_dtype(item.item_b), reference_advice(a_, b_, has_reference_)});
    const double e = d_.output_error;
    if (e > 5e-4 && e < 2e-2)
      say(d_, "computes_bf16");
    else if (e > 5e-5 && e <= 5e-4)
      say(d_, "computes_fp16");
    else if (e <= 5e-5)
      say(d_, "computes_order");
  }

  Divergence& d_;
  const CallComparison& call_;
  const DumpStep& a_;
  const DumpStep& b_;
  bool has_reference_;
};

}  // namespace

std::string reference_advice(const DumpStep& a, const DumpStep& b, bool has_reference) {
  if (has_reference) return "compare runs with equal precision";
  const bool a_is_fp32 = fact_of(a, "precision") == "32-true", b_is_fp32 = fact_of(b, "precision") == "32-true";
  if (a_is_fp32 == b_is_fp32) return "add --reference with a third run in fp32, which distinguishes rounding from faults";
  const std::string low = a_is_fp32 ? "B" : "A", full = a_is_fp32 ? "A" : "B";
  return "compare " + low + " with another run in its precision (" + fact_of(a_is_fp32 ? b : a, "precision") + ") and use " + full +
         ", which is in fp32, as --reference";
}

void explain(Divergence& divergence, const CallComparison& call, const DumpStep& a, const DumpStep& b, bool has_reference) {
  Explainer(divergence, call, a, b, has_reference).run();
}

}  // namespace npu_train::detail
