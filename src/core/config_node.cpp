#include "npu_train/core/config_node.hpp"

#include <algorithm>

#include "core/scalar.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

constexpr size_t kDeepestTree = 64;

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (true) {
    const auto end = path.find('.', begin);
    out.emplace_back(path.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::string Mark::str() const { return line > 0 ? source + ":" + std::to_string(line) + ":" + std::to_string(column) : source; }

ConfigNode::ConfigNode(int64_t value) : kind_(Kind::Scalar), scalar_(std::to_string(value)) {}
ConfigNode::ConfigNode(double value) : kind_(Kind::Scalar), scalar_(shortest(value)) {}

ConfigNode::ConfigNode(std::initializer_list<std::pair<std::string, ConfigNode>> members) : kind_(Kind::Map) {
  for (const auto& [key, value] : members) {
    check(find(key) == nullptr, ErrorKind::Usage, "config", "the key '", key, "' is given twice");
    Member& member = members_.emplace_back();
    member.key = key;
    member.value = value;
  }
}

ConfigNode ConfigNode::list(std::vector<ConfigNode> items) {
  ConfigNode node;
  node.kind_ = Kind::List;
  node.items_ = std::move(items);
  return node;
}

ConfigNode ConfigNode::parsed_scalar(std::string text, bool quoted, Mark mark) {
  ConfigNode node;
  node.mark_ = std::move(mark);
  if (!quoted && detail::is_null_word(text)) return node;
  node.kind_ = Kind::Scalar;
  node.scalar_ = std::move(text);
  node.quoted_ = quoted;
  return node;
}

const ConfigNode* ConfigNode::find(std::string_view key) const {
  for (const auto& member : members_) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

ConfigNode* ConfigNode::find(std::string_view key) { return const_cast<ConfigNode*>(std::as_const(*this).find(key)); }

void ConfigNode::set(std::string_view dotted_path, ConfigNode value) {
  const auto keys = split_path(dotted_path);
  check(keys.size() <= kDeepestTree, ErrorKind::Usage, "config", "a key of ", keys.size(), " parts; allowed: at most ", kDeepestTree);
  ConfigNode* node = this;
  std::string path;
  for (const auto& key : keys) {
    check(!key.empty(), ErrorKind::Usage, "config", "'", dotted_path, "': a part of the key is empty; keys look like trainer.max_epochs");
    if (node->is_null()) node->kind_ = Kind::Map;
    if (node->is_list()) {
      const auto index = detail::parse_integer(key);
      check(index && *index >= 0 && static_cast<size_t>(*index) < node->items_.size(), ErrorKind::Usage, "config", "'", dotted_path,
            "': ", path, " is a list of ", node->items_.size(), " items; '", key, "' is not one of their indices (from 0)");
      node = &node->items_[static_cast<size_t>(*index)];
    } else {
      check(node->is_map(), ErrorKind::Usage, "config", "'", dotted_path, "': ", path.empty() ? "the configuration" : path,
            " is the single value '", node->scalar_, "' and has no keys; hint: write it as a map, as in ", path, "={name: ", node->scalar_,
            "}");
      auto* found = node->find(key);
      if (!found) {
        auto& member = node->members_.emplace_back();
        member.key = key;
        member.key_mark = value.mark_;
        found = &member.value;
        found->mark_ = value.mark_;
      }
      node = found;
    }
    path += (path.empty() ? "" : ".") + key;
  }
  *node = std::move(value);
}

void ConfigNode::put(Member member) {
  check(is_map() || is_null(), ErrorKind::Usage, "config", "a key can be added only to a map");
  kind_ = Kind::Map;
  for (auto& existing : members_) {
    if (existing.key == member.key) {
      existing = std::move(member);
      return;
    }
  }
  members_.push_back(std::move(member));
}

void ConfigNode::push_back(ConfigNode item) {
  check(is_list() || is_null(), ErrorKind::Usage, "config", "an item can be added only to a list");
  kind_ = Kind::List;
  items_.push_back(std::move(item));
}

void ConfigNode::assign_members(std::vector<Member> members) { members_ = std::move(members); }

bool ConfigNode::erase(std::string_view key) {
  return std::erase_if(members_, [&](const Member& member) { return member.key == key; }) > 0;
}

bool ConfigNode::operator==(const ConfigNode& other) const {
  if (kind_ != other.kind_) return false;
  if (is_scalar()) return scalar_ == other.scalar_ && (quoted_ == other.quoted_ || !detail::is_special_word(scalar_));
  if (is_list()) return items_ == other.items_;
  return std::equal(members_.begin(), members_.end(), other.members_.begin(), other.members_.end(),
                    [](const Member& a, const Member& b) { return a.key == b.key && a.value == b.value; });
}

void ConfigNode::move_to(const Mark& mark) {
  mark_ = mark;
  for (auto& item : items_) item.move_to(mark);
  for (auto& member : members_) {
    member.key_mark = mark;
    member.value.move_to(mark);
  }
}

void apply_override(ConfigNode& root, std::string_view key_equals_value) {
  const auto equals = key_equals_value.find('=');
  check(equals != std::string_view::npos && equals > 0, ErrorKind::Usage, "command line", "'", key_equals_value,
        "' does not have the form key=value, as in trainer.max_epochs=3");
  // Omits the position: columns inside an argument would not help a user.
  try {
    auto value = parse_yaml(key_equals_value.substr(equals + 1), "the value");
    value.move_to({"command line", 0, 0});
    root.set(key_equals_value.substr(0, equals), std::move(value));
  } catch (const Error& e) {
    throw Error(ErrorKind::Usage, "command line", std::string(key_equals_value) + ": " + e.message());
  }
}

}  // namespace npu_train
