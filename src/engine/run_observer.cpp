#include "npu_train/engine/run_observer.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

// Sections that only npu_train::tools provides.
constexpr std::array<std::string_view, 2> kToolSections = {"dump", "monitor"};

bool is_tool_section(const std::string& name) { return std::find(kToolSections.begin(), kToolSections.end(), name) != kToolSections.end(); }

std::string unknown_section(const std::string& name) {
  if (is_tool_section(name))
    return "this program has no section '" + name + "'; hint: it is part of npu_train::tools; link that library and call add_tools(parts)";
  return "no observer has the section '" + name + "'";
}

}  // namespace

void ObserverRegistry::add(const std::string& name, const std::string& doc, std::function<Made()> factory) {
  entries_[name] = Entry{.doc = doc, .make = [factory](const ConfigNode&) { return factory(); }, .resolve = {}, .describe = {}};
}

bool ObserverRegistry::has_section(const std::string& name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() && found->second.resolve;
}

std::vector<FieldInfo> ObserverRegistry::describe() const {
  std::vector<FieldInfo> out;
  for (const auto& [name, entry] : entries_) {
    if (!entry.resolve) continue;
    out.push_back({.name = name, .type = "section", .doc = entry.doc, .allowed = {}, .default_text = {}, .children = entry.describe()});
    out.back().children.insert(out.back().children.begin(), {.name = "enabled",
                                                             .type = "true | false",
                                                             .doc = "false: as without the section",
                                                             .allowed = {},
                                                             .default_text = "true",
                                                             .children = {}});
  }
  return out;
}

void ObserverRegistry::take_sections(ConfigNode& root, ConfigSections& sections, ConfigProblems& problems) const {
  if (!root.is_map()) return;
  const auto members = root.members();
  for (const auto& member : members) {
    if (!has_section(member.key) && !is_tool_section(member.key)) continue;
    auto section = member.value;
    root.erase(member.key);
    bool enabled = true;
    if (const auto* given = section.find("enabled"); given != nullptr) {
      detail::read_value(*given, member.key + ".enabled", {}, enabled, problems);
      section.erase("enabled");
    }
    if (!enabled && section.is_map() && !section.members().empty())
      log_warning("without effect: the keys of ", member.key, ", which has enabled: false; hint: remove it, or the section");
    if (!enabled) continue;
    if (has_section(member.key)) {
      sections[member.key] = section;
    } else {
      problems.add(member.key_mark, member.key, unknown_section(member.key));
    }
  }
}

ConfigSections ObserverRegistry::resolve(const ConfigSections& sections, ConfigProblems& problems) const {
  ConfigSections out;
  for (const auto& [name, section] : sections) {
    if (has_section(name)) {
      out[name] = entries_.at(name).resolve(section, name, problems);
    } else {
      problems.add(section.mark(), name, unknown_section(name));
    }
  }
  return out;
}

std::vector<ObserverRegistry::Made> ObserverRegistry::make(const ConfigSections& sections) const {
  std::vector<Made> out;
  for (const auto& [name, entry] : entries_) {
    const auto section = sections.find(name);
    if (entry.resolve && section == sections.end()) continue;
    out.push_back(entry.make(entry.resolve ? section->second : ConfigNode::map()));
  }
  return out;
}

void ObserverRegistry::add_problem(ConfigProblems& problems, const ConfigNode& section, const Error& error) {
  problems.add(section.mark(), error.where(), error.message());
}

}  // namespace npu_train
