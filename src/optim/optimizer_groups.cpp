// Optimizer::set_groups(): turns rules by name into entries of the optimizer's groups.
#include <cmath>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/name_pattern.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/optim/optimizer.hpp"

namespace npu_train {
namespace {

constexpr const char* kGroups = "optimizer.groups";

void check_options(const ParameterGroups& rules) {
  for (const auto& group : rules.groups) {
    check(!group.match.empty(), ErrorKind::Usage, kGroups, "a group has no 'match'; hint: {match: \"backbone.*\", lr_mult: 0.1}");
    check(
        group.lr_mult >= 0 && group.lr_mult < 1e30 && (group.weight_decay == -1 || (group.weight_decay >= 0 && group.weight_decay < 1e30)),
        ErrorKind::Usage, kGroups, "'", group.match, "' has lr_mult ", group.lr_mult, " and weight_decay ", group.weight_decay,
        "; both must be at least 0 and less than 1e30; weight_decay may be -1, the optimizer's");
  }
  check(rules.layer_decay > 0 && rules.layer_decay <= 1, ErrorKind::Usage, "optimizer.layer_decay", "it is ", rules.layer_decay,
        "; it must be more than 0 and at most 1");
}

using Rules = std::unordered_map<std::string, GroupOptions>;

// Adds the rules. Each pattern must select a parameter, and no parameter may be selected twice.
void add_matches(Rules& rules, const std::vector<ParameterGroup>& groups, const ParameterSet& all) {
  std::vector<std::string> names;
  for (const auto& p : all) names.push_back(p.name);
  for (const auto& group : groups)
    for (const auto& name : selected_names(kGroups, "parameter", {group.match}, names)) {
      const GroupOptions own{.lr_mult = group.lr_mult, .weight_decay = group.weight_decay, .name = group.match};
      const auto [before, added] = rules.emplace(name, own);
      check(added, ErrorKind::Usage, kGroups, name, " matches '", before->second.name, "' and '", group.match,
            "'; a parameter belongs to one group; hint: narrower patterns");
    }
}

void add_layers(Rules& rules, double layer_decay, const ParameterSet& all) {
  const auto layers = layers_from_output(all);
  for (size_t i = 0; i < all.size(); ++i) {
    auto& rule = rules[all[i].name];
    rule.lr_mult *= std::pow(layer_decay, layers[i]);
    rule.name += str_cat(rule.name.empty() ? "layer " : ", layer ", layers[i], " from the output");
  }
}

}  // namespace

void Optimizer::set_groups(const ParameterGroups& given, const ParameterSet& all) {
  check_options(given);
  const auto& known = all.empty() ? parameters_ : all;
  Rules rules;
  if (!known.empty()) add_matches(rules, given.groups, known);  // without known parameters, checks only the options
  if (!known.empty() && given.layer_decay != 1) add_layers(rules, given.layer_decay, known);
  rules_ = std::move(rules);
  parameters_ = with_rules(std::move(parameters_));
}

// Moves the parameters that have a rule out of the optimizer's own groups, into new groups with these rules.
ParameterSet Optimizer::with_rules(ParameterSet parameters) {
  const size_t own = groups_.size() - own_groups_.size();
  for (auto& p : parameters)
    if (p.group >= static_cast<int>(own)) p.group = own_groups_[static_cast<size_t>(p.group) - own];
  groups_.resize(own);
  own_groups_.clear();
  for (auto& p : parameters) {
    const auto rule = rules_.find(p.name);
    if (rule == rules_.end()) continue;
    auto group = groups_[static_cast<size_t>(p.group)];
    group.lr_mult *= rule->second.lr_mult;
    if (rule->second.weight_decay >= 0) group.weight_decay = rule->second.weight_decay;
    group.name = group.name.empty() ? rule->second.name : rule->second.name + ", " + group.name;
    size_t at = own;
    while (at < groups_.size() && !(groups_[at] == group && own_groups_[at - own] == p.group)) ++at;
    if (at == groups_.size()) groups_.push_back(group), own_groups_.push_back(p.group);
    p.group = static_cast<int>(at);
  }
  return parameters;
}

}  // namespace npu_train
