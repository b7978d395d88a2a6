#include "npu_train/optim/param_groups.hpp"

namespace npu_train {

std::vector<GroupOptions> default_groups() { return {{.lr_mult = 1, .decay_mult = 1}, {.lr_mult = 1, .decay_mult = 0}}; }

bool is_bias_or_norm(const Parameter& parameter) { return parameter.whole().dim() <= 1 || parameter.name.ends_with("bias"); }

ParameterSet split_no_decay(ParameterSet parameters) {
  for (auto& p : parameters)
    if (p.group == 0 && is_bias_or_norm(p)) p.group = 1;
  return parameters;
}

}  // namespace npu_train
