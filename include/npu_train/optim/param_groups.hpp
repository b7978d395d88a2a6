/// Parameter groups: sets of parameters that have their own learning rate and weight decay.
#pragma once

#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Options of one group of parameters; Parameter::group is its index.
struct GroupOptions {
  double lr_mult = 1;        ///< factor on the learning rate
  double decay_mult = 1;     ///< factor on weight_decay
  double weight_decay = -1;  ///< weight decay of the group; -1: that of the optimizer
  std::string name{};        ///< name in the log
  bool operator==(const GroupOptions&) const = default;
};

/// An item of `optimizer.groups`.
struct ParameterGroup {
  std::string match{};       ///< a pattern as in model.freeze: consecutive parts of a name, "*" matches any text ("backbone.*", "*.bias")
  double lr_mult = 1;        ///< factor on the learning rate
  double weight_decay = -1;  ///< weight decay of the group, except for parameters that no_decay excludes; -1: that of the optimizer
  static const ConfigTable<ParameterGroup>& config_table();
};

/// Keys of each optimizer that select parameters; see Optimizer::set_groups().
struct ParameterGroups {
  std::vector<ParameterGroup> groups{};
  double layer_decay = 1;  ///< the learning rate of each block is this share of the next block's (Clark et al., ELECTRA, ICLR 2020); 1: off
  static const ConfigTable<ParameterGroups>& config_table();
};

/// Returns the number of blocks between each parameter and the output, by timm's rule: 0 for the head, 1 for the last block and a
/// normalisation after it, and so on to the stem or the embeddings. A block is a numbered module ("blocks.3", "layer1.0",
/// "encoder_layer_3"), and parameters before the first block are the stem. Error(Usage) for a model without numbered modules, or with
/// several lists of numbered modules.
std::vector<int> layers_from_output(const ParameterSet& parameters);

/// Returns two groups: group 0 uses the options as configured, group 1 has no weight decay.
std::vector<GroupOptions> default_groups();

/// Returns whether weight decay usually omits the parameter: a bias, or a scale or shift of a normalisation layer. Rule: at most one
/// dimension, or a name that ends in "bias".
bool is_bias_or_norm(const Parameter& parameter);

/// Moves biases and normalisation parameters from group 0 to group 1; parameters in other groups stay.
ParameterSet split_no_decay(ParameterSet parameters);

}  // namespace npu_train
