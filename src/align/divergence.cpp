#include <algorithm>
#include <cmath>
#include <cstdio>

#include "align/compare_parts.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;
using Cause = Divergence::Cause;

constexpr double kJump = 10;  // of the error, that rounding does not explain

bool two_sided(const CallComparison& call) { return !call.a.empty() && !call.b.empty(); }

std::string percent(double error) {
  char text[32];
  if (std::isinf(error)) return "not finite or of another shape";
  std::snprintf(text, sizeof text, "%.3g", error);
  return text;
}

// Walks the calls in order and stops at the first that differs by itself.
class Walk {
 public:
  // `exact`: no rounding is expected, every difference counts.
  Walk(const StepComparison& step, bool exact) : step_(step), exact_(exact) {}

  Divergence run() {
    for (const auto& call : step_.calls) {
      if (!two_sided(call)) continue;
      if (call.direction == "parameters_grad" || call.layer.starts_with("optimizer")) continue;
      if (auto found = visit(call); found.found) return found;
      worst_output_[call.direction] = std::max(worst_output_[call.direction], call.output_error);
    }
    if (auto found = gradients(); found.found) return found;
    return optimizer();
  }

 private:
  double threshold(const CallComparison& call) const { return exact_ ? 0 : kJump * call.noise; }

  Divergence make(const CallComparison& call, Cause cause, double in, double out) const {
    Divergence d;
    d.found = true;
    d.step = step_.step;
    d.rank = step_.rank;
    d.call = call.a;
    d.layer = call.layer;
    d.type = call.type;
    d.direction = call.direction;
    d.cause = cause;
    d.input_error = in;
    d.output_error = out;
    return d;
  }

  Divergence visit(const CallComparison& call) {
    const double limit = threshold(call);
    const bool takes = std::any_of(call.items.begin(), call.items.end(), [](const auto& i) { return i.side == "input"; });
    const double input_error = takes ? call.input_error : worst_output_[call.direction];  // the loss shows only what it gives
    if (call.direction == "forward" && call.parameter_error > limit)
      return make(call, Cause::Weights, call.parameter_error, call.output_error);
    // an error that came in with the input was made before, seen in an output or not
    const bool inherited = input_error <= kJump * std::max(worst_output_[call.direction], worst_output_["forward"]) ||
                           (call.direction == "backward" && worst_output_["forward"] > limit);
    if (input_error > limit && !inherited) return make(call, any_before_ ? Cause::Before : Cause::Input, input_error, call.output_error);
    any_before_ = true;
    const double floor = exact_ ? 0 : call.noise;
    if (call.output_error > limit && call.output_error > kJump * std::max(input_error, floor))
      return make(call, std::isinf(call.output_error) ? Cause::NotFinite : Cause::Layer, input_error, call.output_error);
    return {};
  }

  // A layer whose gradients differ though all that they are computed from agrees.
  Divergence gradients() const {
    std::map<std::string, double> into;
    bool know_backward = false;
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || call.direction == "parameters_grad") continue;
      into[call.layer] = std::max(into[call.layer], call.input_error);
      know_backward |= call.direction == "backward";
    }
    const CallComparison* last = nullptr;
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || call.direction != "parameters_grad" || call.output_error <= threshold(call)) continue;
      last = &call;
      const auto found = into.find(call.layer);
      if (know_backward && found != into.end() && call.output_error > kJump * std::max(found->second, exact_ ? 0 : call.noise))
        return make(call, Cause::Gradient, found->second, call.output_error);
    }
    // Errors run from the loss to the first layer: of those that differ the last of the network is nearest to where it began.
    return last != nullptr && !know_backward ? make(*last, Cause::Gradient, 0, last->output_error) : Divergence{};
  }

  Divergence optimizer() const {
    double gradient = 0;
    for (const auto& call : step_.calls)
      if (two_sided(call) && call.direction == "parameters_grad") gradient = std::max(gradient, call.output_error);
    for (const auto& call : step_.calls) {
      if (!two_sided(call) || !call.layer.starts_with("optimizer")) continue;
      const double error = std::max({call.parameter_error, call.output_error, call.input_error});
      if (error > threshold(call) && error > kJump * std::max(gradient, exact_ ? 0 : call.noise))
        return make(call, Cause::Optimizer, gradient, error);
    }
    return {};
  }

  const StepComparison& step_;
  bool exact_;
  bool any_before_ = false;
  std::map<std::string, double> worst_output_;
};

// Nothing stands out: the first value beyond its tolerance.
Divergence first_failure(const StepComparison& step) {
  for (const auto& call : step.calls) {
    if (!call.failed) continue;
    Divergence d;
    d.found = true;
    d.step = step.step;
    d.rank = step.rank;
    d.call = call.a;
    d.layer = call.layer;
    d.type = call.type;
    d.direction = call.direction;
    d.input_error = call.input_error;
    d.output_error = call.output_error;
    d.sentence = "the error grows from call to call and leaves the tolerance at " + call.a + "; no single layer begins it";
    d.likely = {"rounding that adds up: another order of accumulation, another precision, other kernels"};
    d.advice = {"compare with a third run in fp32 (--reference), which tells rounding from faults",
                "raise the tolerance where that run shows the same error"};
    return d;
  }
  return {};
}

std::string place_of(const Divergence& d) {
  return (d.layer.empty() ? d.call : d.layer) + " (" + d.type + ", " + d.direction + ", step " + std::to_string(d.step) + ")";
}

std::string sentence_of(const Divergence& d) {
  switch (d.cause) {
    case Cause::Input:
      return "the runs begin with other data: the input of " + place_of(d) + " differs by " + percent(d.input_error);
    case Cause::Weights:
      return "the weights of " + place_of(d) + " differ by " + percent(d.input_error) + " before they are used";
    case Cause::Before:
      return "what reaches " + place_of(d) + " differs by " + percent(d.input_error) +
             ", though every layer before it agrees: the difference " + "is made between them";
    case Cause::Gradient:
      return "the gradients of the parameters of " + place_of(d) + " differ by " + percent(d.output_error) +
             ", though what they are computed from agrees";
    case Cause::Optimizer:
      return "the optimizer's step differs by " + percent(d.output_error) + ", though the gradients agree to " + percent(d.input_error);
    case Cause::NotFinite:
      return "the outputs of " + place_of(d) + " are not finite, or of another shape, on one side only";
    case Cause::Layer:
      break;
  }
  return place_of(d) + " gives outputs that differ by " + percent(d.output_error) + " from inputs that differ by " + percent(d.input_error);
}

}  // namespace

Divergence first_divergence(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool same_environment) {
  auto found = Walk(step, same_environment).run();
  if (!found.found) found = first_failure(step);
  if (!found.found) return found;
  found.within_tolerance = step.failed == 0;
  if (found.sentence.empty()) found.sentence = sentence_of(found);
  for (const auto& call : step.calls)
    if (call.a == found.call) {
      explain(found, call, a, b);
      break;
    }
  if (same_environment) {
    const auto beyond = Walk(step, false).run();
    if (beyond.found && beyond.call != found.call) found.advice.push_back("the first difference beyond rounding is at " + place_of(beyond));
  }
  return found;
}

}  // namespace npu_train::detail
