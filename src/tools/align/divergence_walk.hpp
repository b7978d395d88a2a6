// How an error runs through the calls of a step.
#pragma once

#include <map>
#include <set>
#include <string>

#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {

bool two_sided(const CallComparison& call);
bool of_optimizer(const CallComparison& call);
bool of_loss(const CallComparison& call);
// Of the model's forward, the loss too.
bool in_forward(const CallComparison& call);
// Forward and backward calls of the model.
bool in_network(const CallComparison& call);
// Zeros on one side alone are no rounding.
bool zero_on_one_side(const CallComparison& call);
bool is_norm(const CallComparison& call);
// The norm that kernels fuse with what follows it.
bool is_batch_norm(const CallComparison& call);
// The side that fuses kernels gives the value behind the ReLU.
bool is_activated(const CallComparison& call, bool in_a);
// An error in words.
std::string error_text(double error);
// "differs by 0.3" for the values of a call on this side, or the reason of an unbounded error: "is differently shaped ([2] and [3])".
// `many`: "differ".
std::string apart_text(double error, const CallComparison& call, const std::string& side, bool many);
// "layer1.0.conv1 (Conv2d, forward, step 0)".
std::string place_of(const Divergence& divergence);
// The first value that fail_unproven failed.
Divergence first_unproven(const StepComparison& step);
// A finding at this call, without its cause.
Divergence divergence_at(const StepComparison& step, const CallComparison& call);

// How calls hang together: which run inside which, and which gradients are one tensor.
class CallStructure {
 public:
  CallStructure(const StepComparison& step, const DumpStep& a);
  bool is_around(const CallComparison& call) const { return inside_.count(call.a) != 0; }
  // The error that reaches what a call does itself: with its inputs, or out of the calls inside it.
  double into(const CallComparison& call) const;
  // The error that a call causes. If a value feeds several layers, each of them shows the complete gradient, which only the last one
  // completes.
  double out_of(const CallComparison& call) const;

 private:
  std::map<std::string, double> inside_;               // by the call around: worst output of those inside
  std::map<std::string, const CallComparison*> last_;  // that shows a gradient
};

struct Walk {
  Divergence first;                // the first call that differs by itself
  double forward_error = 0;        // the worst of the forward up to there, without that of the loss
  double weight_error = 0;         // the worst that weights come in with, noise included
  std::set<std::string> vanished;  // norms whose output is another place of the network on the side that fuses kernels
  std::set<std::string> unproven;  // those of which a part of the network does not show it
  bool unproven_update = false;    // only gradients that a part leaves out can explain the optimizer's step
};

// Whether calls between those that are compared are missing.
bool leaves_gaps(const StepComparison& step, const DumpStep& a, const DumpStep& b);

// Walks the calls in order and stops at the first that differs by itself. `exact`: no rounding is expected, every difference counts.
Walk walk(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool exact);

// The error of gradients that rounding of the forward explains. They jump where an activation has a kink: of a relative error e of the
// forward about a share e of the elements change sides (ReLU, max pooling), which is an error of sqrt(e) in the norm.
// `later`: in a step whose weights came in with rounding of their own, which flips more of them.
double kink_error(double forward_error, bool later = false);

}  // namespace npu_train::detail
