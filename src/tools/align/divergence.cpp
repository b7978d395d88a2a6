#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/divergence_walk.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train::detail {
namespace {

using Cause = Divergence::Cause;
using Kind = ItemComparison::Kind;

// Returns the largest gradient error that kinks can explain, however large the forward error is: a tenth or, if that is larger, the error
// that kinks cause from the rounding of one layer.
double most_of_kinks(const StepComparison& step) {
  constexpr double kTenth = 0.1;
  double noise = 0;
  for (const auto& call : step.calls) noise = std::max(noise, call.noise);
  return std::max(kTenth, kink_error(noise, step.drifted));
}

// Describes an entry that one side lacks but should have.
Divergence lone_failure(const StepComparison& step, const CallComparison& call, const ItemComparison& item) {
  auto d = divergence_at(step, call);
  d.cause = call.direction == "forward" ? Cause::Layer : Cause::Gradient;
  d.sentence = (item.a.empty() ? item.b : item.a) + " is in " + (item.a.empty() ? "B" : "A") + " only; " + item.message;
  say(d, call.direction == "forward" ? "lone_call" : "lone_gradient");
  return d;
}

// Reports unreadable files if all other values agree.
Divergence unreadable(const StepComparison& step) {
  for (const auto& call : step.calls)
    for (const auto& item : call.items) {
      if (!item.failed || !item.unreadable) continue;
      auto d = divergence_at(step, call);
      d.cause = Cause::Unreadable;
      d.sentence = "the values of " + counted(step.unreadable, "pair") + " of step " + std::to_string(step.step) +
                   " cannot be read from their files, the first " + (item.a.empty() ? item.b : item.a) + ": " + item.message;
      say(d, "unreadable");
      return d;
    }
  return {};
}

// Reports the first value beyond its tolerance, for the case that no single call is the cause.
Divergence first_failure(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool has_reference) {
  const CallStructure structure(step, a);
  for (const auto& call : step.calls) {
    if (!call.failed || structure.is_around(call)) continue;
    const auto failed =
        std::find_if(call.items.begin(), call.items.end(), [](const ItemComparison& i) { return i.failed && !i.unreadable; });
    if (failed == call.items.end()) continue;
    if (failed->kind == Kind::OneSided) return lone_failure(step, call, *failed);
    auto d = divergence_at(step, call);
    if (std::isinf(failed->error)) {
      d.sentence = "the " + (failed->side.empty() ? "values" : failed->side) + " of " + place_of(d) + " " +
                   apart_text(failed->error, call, failed->side, failed->side == "parameters");
      return d;
    }
    if (step.unproven_places.count(call.layer) != 0) {
      d.sentence = place_of(d) + " differs by " + error_text(failed->error) +
                   ", like a norm that one side fuses with the operators after it, and no later layer is compared that would prove it";
      say(d, "norm_at_other_place");
      return d;
    }
    if (step.drifted) {
      d.sentence = "in step " + std::to_string(step.step) + " " + call.a + " differs by " + error_text(failed->error) +
                   ", more than rounding explains: its weights already differ, because updates amplified rounding or a fault that no "
                   "single layer shows";
      say(d, "drifted");
      return d;
    }
    d.sentence = "the error grows from call to call and exceeds the tolerance at " + call.a + " in step " + std::to_string(step.step) +
                 "; no single layer causes it";
    say(d, has_reference ? "accumulated_in_both" : "accumulated", {reference_advice(a, b, has_reference)});
    if (!has_reference) say(d, "tolerance");
    return d;
  }
  return {};
}

// Adds operators that only one side runs right before `call` to the likely causes.
void tell_lone_operators(const StepComparison& step, const CallComparison& call, Divergence& d) {
  constexpr size_t kMost = 3;
  if (d.cause != Cause::Layer && d.cause != Cause::Before) return;
  std::vector<std::string> lone;
  for (const auto& before : step.calls) {
    if (&before == &call) break;
    if (before.direction != "forward") continue;
    if (two_sided(before) && before.output_error == 0) lone.clear();  // both sides agree up to here
    const auto& name = before.a.empty() ? before.b : before.a;
    if (!two_sided(before) && !name.starts_with("Module.")) lone.push_back(name + " in " + (before.a.empty() ? "B" : "A"));
  }
  if (lone.empty()) return;
  if (lone.size() > kMost) lone.resize(kMost);
  d.likely.insert(d.likely.begin(), "operators on one side only before it: " + join(lone));
}

std::string sentence_of(const Divergence& d, const CallComparison& call) {
  const std::string in = call.direction == "parameters_grad" ? "parameters_grad" : "output";
  switch (d.cause) {
    case Cause::Input:
      return "the runs begin with different data: the input of " + place_of(d) + " " + apart_text(d.input_error, call, "input", false);
    case Cause::Weights:
      return "the weights of " + place_of(d) + " " + apart_text(d.input_error, call, "parameters", true) + " before their use";
    case Cause::Before:
      return "the input of " + place_of(d) + " " + apart_text(d.input_error, call, "input", false) +
             ", although every layer before it agrees: the difference arises between them";
    case Cause::Gradient:
      return "the gradients of the parameters of " + place_of(d) + " " + apart_text(d.output_error, call, in, true) +
             ", although the values from which they are computed agree";
    case Cause::Optimizer:
      return "the optimizer's step " + apart_text(d.output_error, call, in, false) + "; the gradients " +
             (d.input_error == 0          ? "are equal"
              : std::isinf(d.input_error) ? "do too"
                                          : "differ by " + error_text(d.input_error));
    default:
      break;
  }
  return place_of(d) + " produces outputs that " + apart_text(d.output_error, call, in, true) + " from inputs that " +
         (d.input_error == 0 ? "are equal" : apart_text(d.input_error, call, "input", true));
}

// Whether the item is the output of a norm that one side fuses with later operators, or the gradient of that output.
bool at_vanished(const CallComparison& call, const ItemComparison& item, const Walk& seen) {
  const bool known = seen.vanished.count(call.layer) != 0 || seen.unproven.count(call.layer) != 0;
  return std::isfinite(item.error) && known && item.side == (in_forward(call) ? "output" : "input");
}

}  // namespace

void forgive_rounding(StepComparison& step, const DumpStep& a, const DumpStep& b, const Forgiving& how) {
  const auto seen = walk(step, a, b, /*exact=*/false);
  if (seen.first.found || step.update.found) return;
  step.unproven_update = seen.unproven_update;
  step.drifted = !how.places_only && how.later && seen.weight_error > 0;
  const bool open = !how.places_only && !how.strict && (step.drifted || leaves_gaps(step, a, b));
  const bool forward_agrees = std::none_of(step.calls.begin(), step.calls.end(), [&](const CallComparison& call) {
    return in_forward(call) && std::any_of(call.items.begin(), call.items.end(), [&](const ItemComparison& i) {
             return i.failed && !i.unreadable && !at_vanished(call, i, seen);
           });
  });
  const double error = step.drifted ? std::max(seen.forward_error, seen.weight_error) : seen.forward_error;
  const double most = std::min(most_of_kinks(step), kink_error(error, step.drifted));
  for (auto& call : step.calls) {
    call.failed = false;
    for (auto& item : call.items) {
      const bool values = item.kind == Kind::Tensor || item.kind == Kind::Statistics;
      const bool kink = !how.places_only && (step.drifted || (forward_agrees && !in_forward(call))) && item.error <= most;
      const bool place = at_vanished(call, item, seen);
      const bool beyond = item.failed && !item.unreadable && values && std::isfinite(item.error);
      const bool place_unproven = place && seen.unproven.count(call.layer) != 0;
      const bool unproven = place_unproven || (kink && step.unproven_update && of_optimizer(call));
      if (beyond && place_unproven) step.unproven_places.insert(call.layer);
      if (beyond && (kink || place) && !unproven) {
        item.rounding = true;
        ++step.rounding;
        step.other_places += place;
      } else if (beyond && (unproven ? !how.strict : open)) {
        step.not_proven += unproven;
        item.not_judged = true;
        ++step.not_judged;
      }
      if (item.rounding || item.not_judged) {
        step.failed -= item.failed;
        item.failed = false;
      }
      call.failed |= item.failed;
    }
  }
}

Divergence first_divergence(const StepComparison& step, const DumpStep& a, const DumpStep& b, const Setting& setting) {
  const auto unproven = first_unproven(step);
  if (unproven.found && step.unproven == step.failed) return unproven;
  if (step.unreadable > 0 && step.unreadable + step.unproven == step.failed) return unreadable(step);
  if (step.update.found) return step.update;
  auto found = walk(step, a, b, setting.same_environment).first;
  if (!found.found) found = first_failure(step, a, b, setting.has_reference);
  if (!found.found) return found;
  found.within_tolerance = step.failed == 0;
  for (const auto& call : step.calls)
    if (found.call == (call.a.empty() ? call.b : call.a)) {
      if (found.sentence.empty()) found.sentence = sentence_of(found, call);
      explain(found, call, a, b, setting.has_reference);
      tell_lone_operators(step, call, found);
      break;
    }
  if (setting.same_environment) {
    const auto beyond = walk(step, a, b, false).first;
    if (beyond.found && beyond.call != found.call) found.advice.push_back("the first difference beyond rounding is at " + place_of(beyond));
  }
  if (unproven.found) found.advice.push_back(unproven.sentence);
  for (const auto other : {other_models, other_structure}) {
    auto networks = other(step, a, b);
    if (!networks.found) continue;
    if (!found.sentence.empty()) networks.advice.push_back("in the common part: " + found.sentence);
    return networks;
  }
  return found;
}

}  // namespace npu_train::detail
