#include "npu_train/nn/freezing.hpp"

#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/name_pattern.hpp"
#include "npu_train/nn/named_state.hpp"

namespace npu_train {

std::vector<std::string> freeze_parameters(torch::nn::Module& module, const std::vector<std::string>& patterns) {
  const auto parameters = parameters_of(module);
  std::vector<std::string> names;
  for (const auto& p : parameters) names.push_back(p.name);
  const auto chosen = selected_names("freeze", "parameter", patterns, names);
  std::vector<std::string> out;
  std::vector<at::Tensor> frozen;
  bool rest = false;
  for (const auto& p : parameters) {
    const bool is_chosen = chosen.count(p.name) != 0;
    if (is_chosen) out.push_back(p.name), frozen.push_back(p.value);
    rest = rest || (!is_chosen && p.value.requires_grad());
  }
  check(rest, ErrorKind::Usage, "freeze", "no parameter would be left to train");
  for (const auto& value : frozen) value.set_requires_grad(false);
  return out;
}

}  // namespace npu_train
