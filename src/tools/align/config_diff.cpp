#include "npu_train/tools/align/config_diff.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "npu_train/core/text.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {
namespace {

// Sections and settings that do not affect results.
constexpr std::array kSilentSections = {"output", "checkpoint", "dump", "monitor", "early_stopping"};
constexpr std::array kSilentSettings = {"trainer.max_time", "trainer.num_sanity_val_steps",  "trainer.detect_anomaly",
                                        "data.download",    "trainer.max_consecutive_skips", "sim_npu.devices",
                                        "sim_npu.hbm"};
// Settings that are ignored in any section, also in configurations of other programs.
constexpr std::array kSilentNames = {"num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "log_every_n_steps"};

template <class T>
std::optional<T> whole(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

bool same_scalar(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto whole_a = whole<int64_t>(a), whole_b = whole<int64_t>(b);
  if (whole_a && whole_b) return *whole_a == *whole_b;  // not as double, which cannot represent all 64-bit seeds
  const auto x = whole<double>(a), y = whole<double>(b);
  if (x && y) return *x == *y || (std::isnan(*x) && std::isnan(*y));
  const auto word = to_lower(a.size() <= 5 ? a : std::string());
  return (word == "true" || word == "false") && word == to_lower(b);
}

using MembersByKey = std::map<std::string_view, const ConfigNode*>;

MembersByKey members_by_key(const ConfigNode& map) {
  MembersByKey out;
  for (const auto& member : map.members()) out.emplace(member.key, &member.value);
  return out;
}

bool same_value(const ConfigNode& a, const ConfigNode& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_scalar()) return same_scalar(a.scalar(), b.scalar());
  if (a.is_list()) return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same_value);
  const auto in_b = members_by_key(b);
  return a.members().size() == b.members().size() && std::all_of(a.members().begin(), a.members().end(), [&](const auto& member) {
           const auto found = in_b.find(member.key);
           return found != in_b.end() && same_value(member.value, *found->second);
         });
}

class ConfigWalk {
 public:
  void compare(const std::string& path, const ConfigNode& a, const ConfigNode& b) {
    if (same_value(a, b)) return;
    if (a.is_map() && b.is_map()) return compare_maps(path, a, b);
    if (is_named_part(a, b)) return compare_maps(path, a, ConfigNode{{"name", b}});
    if (is_named_part(b, a)) return compare_maps(path, ConfigNode{{"name", a}}, b);
    if (a.is_list() && b.is_list() && a.items().size() == b.items().size() && (has_maps(a) || has_maps(b))) {
      for (size_t i = 0; i < a.items().size(); ++i) compare(under(path, std::to_string(i)), a.items()[i], b.items()[i]);
      return;
    }
    tell(path, shown(a), shown(b));
  }

  std::vector<ConfigDifference> take() { return std::move(out_); }

 private:
  static std::string under(const std::string& path, const std::string& key) { return path.empty() ? key : path + "." + key; }
  static bool is_named_part(const ConfigNode& map, const ConfigNode& scalar) {
    return map.is_map() && scalar.is_scalar() && map.find("name") != nullptr;
  }
  static bool has_maps(const ConfigNode& list) {
    return std::any_of(list.items().begin(), list.items().end(), [](const auto& item) { return item.is_map(); });
  }

  void compare_maps(const std::string& path, const ConfigNode& a, const ConfigNode& b) {
    const auto in_a = members_by_key(a), in_b = members_by_key(b);
    for (const auto& [key, mark, value] : a.members()) {
      const auto found = in_b.find(key);
      if (found == in_b.end())
        one_sided(under(path, key), value, /*in_a=*/true);
      else
        compare(under(path, key), value, *found->second);
    }
    for (const auto& [key, mark, value] : b.members())
      if (in_a.count(key) == 0) one_sided(under(path, key), value, /*in_a=*/false);
  }

  void one_sided(const std::string& path, const ConfigNode& node, bool in_a) {
    if (node.is_map() && !node.members().empty()) {
      for (const auto& [key, mark, value] : node.members()) one_sided(under(path, key), value, in_a);
      return;
    }
    tell(path, in_a ? shown(node) : kNotGiven, in_a ? kNotGiven : shown(node));
  }

  static std::string shown(const ConfigNode& node) {
    return node.is_scalar() && node.scalar() == kLeftToData ? kLeftToData : to_yaml_line(node);
  }

  void tell(const std::string& path, const std::string& a, const std::string& b) {
    out_.push_back({path, a, b, a != kLeftToData && b != kLeftToData && changes_numbers(path)});
  }

  std::vector<ConfigDifference> out_;
};

}  // namespace

bool changes_numbers(const std::string& path) {
  const auto section = path.substr(0, path.find('.'));
  const auto last = path.substr(path.rfind('.') + 1);  // the complete path if it has no dot
  const auto is = [](const auto& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return !is(kSilentSections, section) && !is(kSilentSettings, path) && !is(kSilentNames, last);
}

std::vector<ConfigDifference> compare_configs(const ConfigNode& a, const ConfigNode& b) {
  const auto section = [](const ConfigNode& node) { return node.is_null() ? ConfigNode::map() : node; };  // an empty file
  ConfigWalk walk;
  walk.compare("", section(a), section(b));
  return walk.take();
}

std::vector<ConfigDifference> compare_environments(const std::map<std::string, std::string>& a,
                                                   const std::map<std::string, std::string>& b) {
  auto names = a;
  names.insert(b.begin(), b.end());
  std::vector<ConfigDifference> out;
  for (const auto& [name, either] : names) {
    const auto x = a.find(name), y = b.find(name);
    if (x != a.end() && y != b.end() && x->second == y->second) continue;
    out.push_back({name, x == a.end() ? kNotGiven : x->second, y == b.end() ? kNotGiven : y->second, true});
  }
  return out;
}

}  // namespace npu_train
