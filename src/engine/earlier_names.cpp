#include "engine/earlier_names.hpp"

#include <string>
#include <utility>
#include <vector>

namespace npu_train {
namespace {

/// Renames the section `ema`, which configurations and checkpoints of earlier versions have, to `average`.
void rename_earlier_section(ConfigNode& node, ConfigProblems& problems) {
  const auto* earlier = node.find("ema");
  if (earlier == nullptr) return;
  const auto* present = node.find("average");
  if (present == nullptr) {
    auto members = node.members();
    for (auto& member : members)
      if (member.key == "ema") member.key = "average";
    return node.assign_members(std::move(members));
  }
  // Both sections are present: an override may replace the section of a file, add to it, or change it.
  const auto is_override = [](const ConfigNode& value) { return value.mark().source == "command line"; };
  auto both = is_override(*earlier) && !is_override(*present) ? *earlier : *present;
  if (is_override(*earlier) != is_override(*present)) {
    *node.find("average") = std::move(both);
    node.erase("ema");
    return;
  }
  const bool maps = earlier->is_map() && both.is_map();
  if (!maps) problems.add(earlier->mark(), "ema", "the earlier name of average, which is given, too; allowed: one of them");
  for (const auto& member : maps ? earlier->members() : std::vector<ConfigNode::Member>()) {
    const auto* there = both.find(member.key);
    if (there == nullptr || (is_override(member.value) && !is_override(*there)))
      both.put(member);
    else if (is_override(member.value) == is_override(*there))
      problems.add(member.key_mark, "ema." + member.key,
                   "the earlier name of average." + member.key + ", which is given, too; allowed: one of them");
  }
  *node.find("average") = std::move(both);
  node.erase("ema");
}

/// Translates output.tensorboard, which configurations and checkpoints of version 0.1.0 have, to output.logger. A list of loggers on the
/// command line replaces output.tensorboard of a file. Next to any other list of loggers, or with a value other than true or false,
/// output.tensorboard is left for the table, which reports it.
void translate_earlier_key(ConfigNode& node) {
  auto* output = node.find("output");
  const auto* earlier = output != nullptr ? output->find("tensorboard") : nullptr;
  const auto text = earlier != nullptr && earlier->is_scalar() ? earlier->scalar() : "";
  if (text != "true" && text != "false") return;
  const auto mark = earlier->mark();
  if (const auto* given = output->find("logger"); given != nullptr) {
    if (given->mark().source != "command line" || mark.source == "command line") return;
  } else if (text == "false") {
    auto loggers = ConfigNode::list({ConfigNode("csv")});
    loggers.move_to(mark);
    output->set("logger", std::move(loggers));
  }
  output->erase("tensorboard");
}

}  // namespace

void detail::rename_earlier(ConfigNode& node, ConfigProblems& problems) {
  rename_earlier_section(node, problems);
  translate_earlier_key(node);
}

ConfigNode with_present_names(ConfigNode node) {
  ConfigProblems of_the_binding;  // ignored, because bind_config() reports these problems
  detail::rename_earlier(node, of_the_binding);
  return node;
}

}  // namespace npu_train
