// The steps of an optimizer for gradients that are only rounding.
//
// The true gradient of a key's bias in attention is zero, as is that of a bias before a norm: softmax and norm remove a constant.
// The computed gradient is rounding, tiny compared with the other gradients of the layer and different in each run. Adam divides gradients
// by their magnitude and turns it into full steps, in any direction; the loss does not depend on their direction.
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
    int64_t share = 1;  // for statistics: 1 for the complete tensor, or one in this many
    bool few = false;   // of statistics: the gradient agrees, and single elements of it may be noise
  };
  struct Rank {
    double rate = 0;                          // the largest learning rate so far
    std::map<std::string, Elements> known{};  // by parameter
  };
  std::map<std::string, Rank> ranks_;
};

}  // namespace npu_train::detail
