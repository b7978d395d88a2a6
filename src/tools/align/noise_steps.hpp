// What an optimizer makes of gradients that are nothing but rounding.
//
// The true gradient of a key's bias in attention is zero, as is that of a bias in front of a norm: softmax and norm take a constant away.
// What is computed is rounding, tiny against the other gradients of the layer and another number in each run. Adam divides gradients by
// their size and makes full steps of it, in any direction; the loss does not depend on where they lead.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {

// Goes along the steps of one comparison. To be asked between runs that may differ in rounding alone.
class NoiseSteps {
 public:
  // After the values of `step` were compared and before they are judged: leaves elements out whose gradient is rounding on both sides, in
  // this step or in one before, and that differ by no more than the steps of an optimizer. `noise`: relative, of the runs' precision.
  void set_aside(StepComparison& step, const DumpStep& a, const DumpStep& b, double noise);

 private:
  struct Elements {
    std::vector<bool> noise{};
    double limit = 0;   // of gradients that are noise
    int64_t share = 1;  // of statistics: the whole, or one in so many
    bool few = false;   // of statistics: the gradient agrees, and single elements of it may be noise
  };
  struct Rank {
    double rate = 0;                          // the largest learning rate so far
    std::map<std::string, Elements> known{};  // by parameter
  };
  std::map<std::string, Rank> ranks_;
};

}  // namespace npu_train::detail
