/// Which parameters decay.
#pragma once

#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// What an optimizer does otherwise for the parameters of one group (Parameter::group is the index).
struct GroupOptions {
  double lr_mult = 1;     ///< times the learning rate
  double decay_mult = 1;  ///< times weight_decay
};

/// Group 0: as configured. Group 1: no weight decay.
std::vector<GroupOptions> default_groups();

/// Is it a parameter that is usually not decayed: a bias, or a scale or shift of a normalisation layer? By rule: at most one dimension, or
/// a name that ends in "bias".
bool is_bias_or_norm(const Parameter& parameter);

/// The set with group 1 for those parameters; parameters that are in a group other than 0 stay there.
ParameterSet split_no_decay(ParameterSet parameters);

}  // namespace npu_train
