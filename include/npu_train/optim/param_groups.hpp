/// Parameter groups with and without weight decay.
#pragma once

#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// Factors for the parameters of one group; Parameter::group is the index.
struct GroupOptions {
  double lr_mult = 1;     ///< factor of the learning rate
  double decay_mult = 1;  ///< factor of weight_decay
};

/// Group 0 uses the options as configured, group 1 has no weight decay.
std::vector<GroupOptions> default_groups();

/// Returns whether the parameter is usually not decayed: a bias, or a scale or shift of a normalisation layer. Rule: at most one dimension,
/// or a name that ends in "bias".
bool is_bias_or_norm(const Parameter& parameter);

/// Moves biases and normalisation parameters from group 0 to group 1; parameters in other groups stay.
ParameterSet split_no_decay(ParameterSet parameters);

}  // namespace npu_train
