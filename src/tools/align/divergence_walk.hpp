// The propagation of an error through the calls of a step.
#pragma once

#include <map>
#include <set>
#include <string>

#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {

bool two_sided(const CallComparison& call);
bool of_optimizer(const CallComparison& call);
bool of_loss(const CallComparison& call);
// Whether the call is in the forward pass, including the loss.
bool in_forward(const CallComparison& call);
// Whether the call is in the forward or backward pass and exists on both sides.
bool in_network(const CallComparison& call);
// Whether all elements of a value are zero on one side and not on the other, which rounding does not explain.
bool zero_on_one_side(const CallComparison& call);
bool is_norm(const CallComparison& call);
// Whether an output of one side has no negative element, as after a fused kernel that also applies the ReLU.
bool is_activated(const CallComparison& call, bool in_a);
std::string error_text(double error);
// Returns "differs by 0.3" for the values of a call on `side` (input, output ...). If the error is infinite, returns the reason: "is
// differently shaped ([2] and [3])". `many`: uses the plural, "differ" and "are".
std::string apart_text(double error, const CallComparison& call, const std::string& side, bool many);
// Returns the place as "layer1.0.conv1 (Conv2d, forward, step 0)".
std::string place_of(const Divergence& divergence);
// Returns the first value that fail_unproven() failed.
Divergence first_unproven(const StepComparison& step);
// Returns a finding at this call, without its cause.
Divergence divergence_at(const StepComparison& step, const CallComparison& call);

// The structure of the calls: which calls run inside others, and which gradients are the same tensor.
class CallStructure {
 public:
  CallStructure(const StepComparison& step, const DumpStep& a);
  bool is_around(const CallComparison& call) const { return inside_.count(call.a) != 0; }
  // Returns the error that enters the call's own computation: the error of its inputs or of the outputs of calls inside it.
  double into(const CallComparison& call) const;
  // Returns the error that a call causes. If a value feeds several layers, several backward calls may show the complete gradient of the
  // value, although only the last call completes it. Then the error counts only for the last call.
  double out_of(const CallComparison& call) const;

 private:
  std::map<std::string, double> inside_;               // by enclosing call: worst output error of the calls inside
  std::map<std::string, const CallComparison*> last_;  // by gradient: the last call that shows it
};

struct Walk {
  Divergence first;                // the first call that differs by itself
  double forward_error = 0;        // the worst forward error up to that call, without the loss
  double weight_error = 0;         // the worst error of weights at the start of the step, including noise
  std::set<std::string> vanished;  // norm layers whose output, on the side with fused kernels, is the value at a later place of the network
  std::set<std::string> unproven;  // norm layers for which this is likely, but not proven by a compared later layer
  bool unproven_update = false;    // only gradients that are not compared can explain the optimizer's step
};

// Whether calls are missing between the compared ones.
bool leaves_gaps(const StepComparison& step, const DumpStep& a, const DumpStep& b);

// Walks the calls in order and stops at the first call that differs by itself. `exact`: rounding is not expected, so that every difference
// counts.
Walk walk(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool exact);

// Returns the largest gradient error that rounding in the forward pass explains. Gradients jump at kinks of activations (ReLU, max
// pooling): with a relative forward error e, about a fraction e of the elements crosses a kink, which causes a relative error of sqrt(e) in
// the norm. `later`: the weights of the step already contain rounding, so that more elements cross a kink.
double kink_error(double forward_error, bool later = false);

}  // namespace npu_train::detail
