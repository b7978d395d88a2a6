/// A configuration as written: scalars, lists and maps, each with its position in the source for error messages.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace npu_train {

/// A position: file name (or "command line", "code"), line and column from 1; 0 if unknown.
struct Mark {
  std::string source = "code";
  int line = 0;
  int column = 0;
  /// Returns "configs/a.yaml:3:7", or only the source if there is no line.
  std::string str() const;
};

/// One node of a configuration. Scalars stay text until a field table binds them to a type.
class ConfigNode {
 public:
  enum class Kind { Null, Scalar, List, Map };
  struct Member;

  // Defined below, because a vector of the incomplete type Member can be declared here, but not constructed.
  ConfigNode();
  ConfigNode(const char* text);
  ConfigNode(std::string text);
  ConfigNode(bool value);
  ConfigNode(int value);
  ConfigNode(int64_t value);
  ConfigNode(double value);
  /// Constructs a map in code: `ConfigNode{{"lr", 0.1}, {"momentum", 0.9}}`.
  ConfigNode(std::initializer_list<std::pair<std::string, ConfigNode>> members);

  static ConfigNode list(std::vector<ConfigNode> items);
  static ConfigNode map();
  /// Returns a scalar as a parser reads it: unquoted "null", "~" and "" become Null.
  static ConfigNode parsed_scalar(std::string text, bool quoted, Mark mark);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::Null; }
  bool is_scalar() const { return kind_ == Kind::Scalar; }
  bool is_list() const { return kind_ == Kind::List; }
  bool is_map() const { return kind_ == Kind::Map; }

  const std::string& scalar() const { return scalar_; }
  /// True for a scalar written in quotes (or given as a C++ string): it is never interpreted as a number, a boolean or null.
  bool quoted() const { return quoted_; }
  const std::vector<ConfigNode>& items() const { return items_; }
  const std::vector<Member>& members() const { return members_; }
  /// Replaces the members of a map; their keys must be unique.
  void assign_members(std::vector<Member> members);

  const Mark& mark() const { return mark_; }
  void set_mark(Mark mark) { mark_ = std::move(mark); }
  /// Sets the mark of this node and of all its descendants.
  void move_to(const Mark& mark);

  /// Compares values and their order; ignores marks, and quotes that have no effect.
  bool operator==(const ConfigNode& other) const;

  /// Returns the value under `key`; nullptr if it is missing or this is not a map.
  const ConfigNode* find(std::string_view key) const;
  ConfigNode* find(std::string_view key);
  /// Sets the value under a dotted path ("trainer.max_epochs"), creating maps as needed. Error(Usage) if the path leads through a scalar.
  void set(std::string_view dotted_path, ConfigNode value);
  /// Adds or replaces one member of a map; its key is used literally, including dots.
  void put(Member member);
  void push_back(ConfigNode item);
  bool erase(std::string_view key);

 private:
  Kind kind_ = Kind::Null;
  std::string scalar_;
  bool quoted_ = false;
  std::vector<ConfigNode> items_;
  std::vector<Member> members_;
  Mark mark_;
};

struct ConfigNode::Member {
  std::string key;
  Mark key_mark;
  ConfigNode value;
};

inline ConfigNode::ConfigNode() = default;
inline ConfigNode::ConfigNode(const char* text) : kind_(Kind::Scalar), scalar_(text), quoted_(true) {}
inline ConfigNode::ConfigNode(std::string text) : kind_(Kind::Scalar), scalar_(std::move(text)), quoted_(true) {}
inline ConfigNode::ConfigNode(bool value) : kind_(Kind::Scalar), scalar_(value ? "true" : "false") {}
inline ConfigNode::ConfigNode(int value) : ConfigNode(static_cast<int64_t>(value)) {}
inline ConfigNode ConfigNode::map() {
  ConfigNode n;
  n.kind_ = Kind::Map;
  return n;
}

/// Parses YAML text. Error(Usage) with line and column if it is not YAML, contains a key twice or more than one document, has an alias that
/// expands to more than 100,000 nodes, or is nested deeper than 64 levels.
ConfigNode parse_yaml(std::string_view text, const std::string& source);

/// Reads a YAML file of at most 4 MiB. Relative paths are resolved in the working directory.
ConfigNode load_yaml(const std::string& path);

/// Applies one "key.path=value" from a command line; the value is YAML ("0.1", "[1, 2]", "{name: adamw}"). List items are addressed by
/// index: "data.transforms.0.size=32". Errors are Error(Usage) with the source "command line".
void apply_override(ConfigNode& root, std::string_view key_equals_value);

/// Returns YAML text that parse_yaml() reads back as an equal node: one line per key, small maps and lists of plain values on one line. A
/// map ends with a line break, other nodes do not.
std::string to_yaml(const ConfigNode& node);

/// Returns YAML on one line: "{name: sgd, lr: 0.1}".
std::string to_yaml_line(const ConfigNode& node);

/// Returns JSON on one line; numbers and booleans are unquoted. inf and nan become text, because JSON does not support them.
std::string to_json(const ConfigNode& node);

}  // namespace npu_train
