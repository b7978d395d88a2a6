#include "npu_train/optim/param_groups.hpp"

#include <algorithm>
#include <unordered_map>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

constexpr const char* kLayerDecay = "optimizer.layer_decay";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A parameter's numbered module, and the list to which that module belongs. For "layer1.0.conv1.weight" these are "layer1.0" and "layer.",
// because the stages of a network are one list. Both are empty for a parameter outside of numbered modules.
struct BlockName {
  std::string block{}, list{};
};

BlockName block_name(const std::string& parameter) {
  size_t begin = 0;
  for (size_t end = parameter.find('.'); end != std::string::npos; begin = end + 1, end = parameter.find('.', begin)) {
    size_t number = end;
    while (number > begin && is_digit(parameter[number - 1])) --number;
    const bool numbered = number < end && (number == begin ? begin > 0 : parameter[number - 1] == '_');
    if (!numbered) continue;
    BlockName out{parameter.substr(0, end), parameter.substr(0, number)};
    out.list.erase(std::remove_if(out.list.begin(), out.list.end(), is_digit), out.list.end());
    return out;
  }
  return {};
}

}  // namespace

std::vector<GroupOptions> default_groups() {
  return {{.lr_mult = 1, .decay_mult = 1}, {.lr_mult = 1, .decay_mult = 0, .weight_decay = -1, .name = "no decay"}};
}

bool is_bias_or_norm(const Parameter& parameter) { return parameter.whole().dim() <= 1 || parameter.name.ends_with("bias"); }

ParameterSet split_no_decay(ParameterSet parameters) {
  for (auto& p : parameters)
    if (p.group == 0 && is_bias_or_norm(p)) p.group = 1;
  return parameters;
}

const ConfigTable<ParameterGroup>& ParameterGroup::config_table() {
  using T = ParameterGroup;
  static const auto table =
      ConfigTable<T>("optimizer.groups")
          .field("match", &T::match, "pattern for names of parameters, as in model.freeze")
          .field("lr_mult", &T::lr_mult, "factor of the learning rate", at_least(0))
          .field("weight_decay", &T::weight_decay, "instead of the optimizer's weight_decay; -1: the optimizer's", at_least(-1))
          .synonym("params", "match")
          .synonym("lr_scale", "lr_mult");
  return table;
}

const ConfigTable<ParameterGroups>& ParameterGroups::config_table() {
  using T = ParameterGroups;
  static const auto table = ConfigTable<T>("optimizer")
                                .field("groups", &T::groups, "parameters with their own learning rate and weight decay")
                                .field("layer_decay", &T::layer_decay, "rate of each block as a share of the next block's; 1: off",
                                       {.lo = 0, .hi = 1, .lo_open = true});
  return table;
}

std::vector<int> layers_from_output(const ParameterSet& parameters) {
  std::vector<BlockName> names;
  std::vector<std::string> blocks, lists;
  std::unordered_map<std::string, bool> has_matrix;  // for each module, whether one of its parameters is a matrix
  size_t last = 0;                                   // index of the last parameter that is in a block
  for (const auto& p : parameters) {
    has_matrix[layer_of(p.name)] |= p.whole().dim() > 1;
    names.push_back(block_name(p.name));
    if (names.back().block.empty()) continue;
    last = names.size() - 1;
    if (std::find(blocks.begin(), blocks.end(), names.back().block) == blocks.end()) blocks.push_back(names.back().block);
    if (std::find(lists.begin(), lists.end(), names.back().list) == lists.end()) lists.push_back(names.back().list);
  }
  check(!blocks.empty(), ErrorKind::Usage, kLayerDecay,
        "the model has no numbered modules, such as blocks.0, whose rates could differ; hint: optimizer.groups");
  check(lists.size() == 1, ErrorKind::Usage, kLayerDecay, "the model has several lists of blocks (", join(lists),
        "), whose order their names do not tell; hint: optimizer.groups");
  const int count = static_cast<int>(blocks.size());
  std::vector<int> out;
  int layer = count + 1;  // begins at the stem; parameters between two blocks go with the first of the two
  for (size_t i = 0; i < names.size(); ++i) {
    const auto at = std::find(blocks.begin(), blocks.end(), names[i].block);
    if (at != blocks.end())
      layer = count - static_cast<int>(at - blocks.begin());
    else if (i > last)
      layer = has_matrix[layer_of(parameters[i].name)] ? 0 : 1;
    out.push_back(layer);
  }
  const int least = *std::min_element(out.begin(), out.end());  // above 0 if the network has no head of its own
  for (auto& l : out) l -= least;
  return out;
}

}  // namespace npu_train
