// Detects optimizer steps that are caused by gradients that are only rounding.
//
// The true gradient of the key's bias in attention is zero, and so is the true gradient of a bias before a norm, because softmax and norms
// remove a constant. The computed gradient is rounding, which is tiny compared with the other gradients of the layer and different in each
// run. Adam divides gradients by their magnitude and so turns this rounding into full steps in any direction. The loss does not depend on
// the direction of these steps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {

// Follows the steps of one comparison. Use it for runs that may differ only by rounding.
class NoiseSteps {
 public:
  // Call it after the values of `step` are compared and before they are judged. Omits elements whose gradient is rounding on both sides, in
  // this or an earlier step, if they differ by no more than the optimizer's steps. `noise`: the relative error of rounding in the runs'
  // precision.
  void set_aside(StepComparison& step, const DumpStep& a, const DumpStep& b, double noise);

 private:
  struct Elements {
    std::vector<bool> noise{};
    double limit = 0;   // largest gradient that counts as noise
    int64_t share = 1;  // if only statistics are known: one in this many elements is noise (1: all)
    bool few = false;   // if only statistics are known: the gradient agrees, but a few of its elements may be noise
  };
  struct Rank {
    double rate = 0;                          // the largest learning rate so far
    std::map<std::string, Elements> known{};  // by parameter
  };
  std::map<std::string, Rank> ranks_;
};

}  // namespace npu_train::detail
