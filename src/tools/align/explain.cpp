// Derives likely causes from observations.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "npu_train/core/text.hpp"
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
        if (rounded_inputs()) return;
        say("different data, order or augmentation",
            "check seed, data.shuffle, batch size and number of ranks; with rng: portable and a fixed seed, every device has the same "
            "batches");
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
        break;  // their findings already contain causes
    }
  }

 private:
  void say(const std::string& likely, const std::string& advice) {
    d_.likely.push_back(likely);
    d_.advice.push_back(advice);
  }

  // Whether the difference of two precisions explains the error, so that it is no fault.
  bool precisions_differ() const {
    constexpr double kMost = 0.1;
    const bool numbers = d_.cause != Cause::Weights && d_.cause != Cause::Optimizer && d_.cause != Cause::NotFinite;
    const bool small = d_.output_error <= kMost && d_.input_error <= kMost;
    return numbers && differs("precision") && (small || d_.cause == Cause::Before);  // casts change the values between layers
  }

  // Detects equal inputs that one side stores with fewer digits.
  bool rounded_inputs() {
    for (const auto& i : call_.items) {
      if (i.side != "input" || i.error == 0 || !i.item_a.is_tensor() || i.item_a.dtype == i.item_b.dtype) continue;
      const auto coarser = coarser_dtype(i.item_a.dtype, i.item_b.dtype);
      if (i.error > noise_of(coarser, coarser)) continue;
      say("the same inputs, rounded to " + coarser + " on one side (" + short_dtype(i.item_a) + " and " + short_dtype(i.item_b) + ")",
          reference_advice(a_, b_, has_reference_));
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
  // Returns an item of this side whose non-finite values do not match.
  const ItemComparison* not_finite(const char* side) const {
    const auto found = std::find_if(call_.items.begin(), call_.items.end(), [&](const ItemComparison& i) {
      return i.side == side && std::isinf(i.error) &&
             (i.kind == ItemComparison::Kind::Tensor || i.kind == ItemComparison::Kind::Statistics);
    });
    return found == call_.items.end() ? nullptr : &*found;
  }
  static bool all_zero(const DumpItem& i) { return i.max && i.min && *i.max == 0 && *i.min == 0; }
  static bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max({std::abs(a), std::abs(b), 1e-30}); }

  void weights() {
    constexpr double kOtherOrder = 0.1;  // exchanged elements differ by their full size
    if (const auto* item = not_finite("parameters"); item != nullptr)
      say("a weight that is " + not_finite_text(*item) + ": caused by an earlier step, or read from the checkpoint",
          "compare the earlier steps, and the checkpoints: npu_tool compare A B");
    else if (any("parameters", [](const DumpItem& a, const DumpItem& b) { return all_zero(a) != all_zero(b); }))
      say("a weight or bias is zero on one side: missing in the checkpoint, or not loaded",
          "compare the checkpoints: npu_tool compare A B");
    else if (any(
                 "parameters",
                 [](const DumpItem& a, const DumpItem& b) {
                   return a.norm && b.norm && a.max && b.max && near(*a.norm, *b.norm) && near(*a.max, *b.max) &&
                          near(a.min.value_or(0), b.min.value_or(0));
                 },
                 kOtherOrder))
      say("the same numbers in a different order: a transposed or permuted weight",
          "check how this layer's weight is stored and loaded (rows and columns, HWIO or OIHW)");
    else if (d_.step > 0)
      say("the update of an earlier step, which was not dumped or agreed within tolerance",
          "dump the previous step with data_mode optimizer");
    else
      say("different initial weights or checkpoints", "start both from the same file (model.weights, or resume) and seed");
  }

  void gradient() {
    constexpr double kOfTies = 0.1;  // the gradient of another layer differs by more than rounding
    if (const auto* item = not_finite("parameters_grad"); item != nullptr)
      say("a gradient that is " + not_finite_text(*item) + ": an overflow in the backward pass (the largest fp16 number is 65504)",
          "use bf16 or a smaller grad_scaler.init_scale; train with --detect-anomaly to find the operator");
    else if (any("parameters_grad", [](const DumpItem& a, const DumpItem& b) { return all_zero(a) != all_zero(b); }))
      say("the gradient is zero on one side: dropped, detached or frozen there",
          "look for no_grad, detach, requires_grad false, or a hook on this parameter");
    else if (to_lower(d_.type) == "embedding" && d_.output_error > kOfTies)
      say("tied weights on one side only: there the gradient is the sum over all layers that share the parameter",
          "check which parameters are one tensor in each program (tie_word_embeddings)");
    else
      say("the kernel of the weight's gradient, or an accumulation in low precision",
          "run this layer in fp32 (amp.fp32_modules); check that gradients of micro-batches are summed in fp32");
    if (differs("loss_scale"))
      say("different loss scales", "compare gradients after unscaling; set the same grad_scaler.init_scale on both sides");
  }

  void optimizer() {
    const auto type = [](const std::string& name) { return name.substr(0, name.find(".forward.")); };
    if (type(call_.a) != type(call_.b))
      say("different optimizers: " + call_.a + " and " + call_.b, "compare the configurations: npu_tool compare A.yaml B.yaml");
    for (const auto& i : call_.items) {
      if (i.kind != ItemComparison::Kind::Value || !i.failed) continue;
      const auto name = i.a.substr(std::min(i.a.size(), call_.a.size() + std::string_view(".input.").size()));
      const auto values = number_text(i.item_a.value) + " and " + number_text(i.item_b.value);
      if (name == "lr")
        say("different learning rates: " + values, "compare the schedules: warm-up, interval (epoch or step), and skipped steps");
      else
        say("different " + name + ": " + values, "compare the configurations: npu_tool compare A.yaml B.yaml");
    }
    if (!d_.likely.empty()) return;
    clipping();
    if (!d_.likely.empty()) return;
    if (has_loss_scale())
      say("the update was skipped on one side (found_inf not agreed)",
          "compare the loss scales, and the found_inf of each rank: npu_tool compare of two metrics.csv");
    say("gradients that one side clips between backward and update, bias correction, parameter groups or a kernel",
        "compare trainer.gradient_clip_val and the configurations: npu_tool compare A.yaml B.yaml");
  }

  // Detects different clipping. Gradients are dumped before clipping; the optimizer's state shows its effect.
  void clipping() {
    const char* advice = "compare trainer.gradient_clip_val and gradient_clip_algorithm: npu_tool compare A.yaml B.yaml";
    if (differs("gradient_clip"))
      say("different gradient clipping: " + fact_of(a_, "gradient_clip") + " and " + fact_of(b_, "gradient_clip"), advice);
    else if (const double times = scaled_state(); times > 0)
      say("gradients that one side clips by their norm: those in A's state are " + shortest(std::round(times * 1e6) / 1e6) +
              " times B's, equally for all parameters",
          advice);
  }

  // Returns the common factor of A's gradient means relative to B's; 0 if there is no common factor or it is 1.
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
      return scale.empty() || decimal_number(scale).value_or(0) != 1;  // unknown for other programs
    };
    return scaled(a_) || scaled(b_);
  }

  static std::string number_text(const std::string& value) {
    const auto number = decimal_number(value);
    return number ? shortest(*number) : value;
  }

  void before() {
    if (d_.direction == "backward")
      return say("the loss, or an operator without parameters between the layers, in its backward",
                 "dump with level: mix to see the operators between the layers");
    say("an operator without parameters between the layers: dropout (random masks), activation, pooling, attention",
        "dump with level: mix; compare without dropout, or with rng: portable, which draws the same masks on every device");
  }

  bool differs(const char* fact) const {
    const auto x = fact_of(a_, fact), y = fact_of(b_, fact);
    return !x.empty() && !y.empty() && x != y;
  }

  // Whether one side never exceeds a typical limit that the other side exceeds.
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
      return say("different shapes", "the rows of this call show the differences");
    if (d_.cause == Cause::NotFinite && d_.direction != "forward" && has_loss_scale())
      say("a loss scale that is too large for this step, which the scaler then skips: dynamic scales begin high and adapt",
          "compare a later step, or set a smaller grad_scaler.init_scale on both sides");
    if (d_.cause == Cause::NotFinite) {
      say("an overflow: the largest fp16 number is 65504",
          "compute this layer in fp32 (amp.fp32_modules), or use bf16; train with detect_anomaly to find the operator");
      return;
    }
    if (saturates())
      say("an overflow that saturates, or values that are clamped, on one side",
          "check INF_NAN_MODE of the chip; compute this layer in fp32");
    if (is("loss") || is("cross_entropy"))
      return say("a different loss or loss option (label_smoothing, weights, reduction, mixup), or different targets",
                 "compare the configurations (task, data): npu_tool compare A.yaml B.yaml");
    if (is("norm") && differs("fused_kernels"))
      say("a fused kernel: one side shows the norm's output after the shortcut and ReLU, and no later layer is dumped that would prove it",
          "also dump the layers after it, or compare with model.fused_kernels: false on both sides");
    if (is("batchnorm"))
      say("BatchNorm: training or evaluation mode, eps, momentum, or different running statistics",
          "compare eps and momentum, and whether both are in training mode");
    else if (is("norm"))
      say("different eps, or statistics computed in low precision", "compare eps; compute norms in fp32 (amp.fp32_ops)");
    if (type == "layer")  // a declared layer, with several operators
      say("an operator inside it: dropout (random masks) if the model has it, an embedding, an activation or pooling",
          "dump with level: mix to see the operators; compare without dropout, or with rng: portable, which draws the same masks on every "
          "device");
    if (is("dropout")) say("random masks", "rng: portable draws the same masks on every device");
    if (is("attention") || is("softmax"))
      say("a fused attention kernel, its scale or its mask", "compare with the unfused form; compute softmax in fp32");
    precision();
    if (is("conv"))
      say("a different padding or padding mode, a missing bias, or a fused operator that omits it",
          "compare the layer's options on both sides");
    else if (is("linear") || is("parameter"))
      say("a missing bias, or a fused operator that omits it", "compare the layer's options on both sides");
    if (d_.direction == "backward") say("the backward kernel of this layer", "compare the same layer with deterministic: true");
    if (d_.likely.empty())
      say("a different option or kernel of this layer", "dump with level: mix to see its operators; compare the configurations");
  }

  void precision() {
    for (const auto& item : call_.items)
      if (item.side == "output" && item.item_a.is_tensor() && item.item_b.is_tensor() && item.item_a.dtype != item.item_b.dtype)
        return say("this layer computes in " + short_dtype(item.item_a) + " in A and in " + short_dtype(item.item_b) + " in B",
                   reference_advice(a_, b_, has_reference_));
    const double e = d_.output_error;
    if (e > 5e-4 && e < 2e-2)
      say("this layer computes in bf16 on one side (rounding to 8 bits gives an error of about 0.002 to 0.005)",
          "check autocast and amp.low_precision_modules");
    else if (e > 5e-5 && e <= 5e-4)
      say("this layer computes in fp16 or TF32 on one side (rounding to 11 bits gives about 0.0003)",
          "switch TF32 or HF32 off, or compute this layer in fp32");
    else if (e <= 5e-5)
      say("a different order of accumulation: fp32 rounding, harmless unless it grows", "check whether the error grows in later layers");
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
