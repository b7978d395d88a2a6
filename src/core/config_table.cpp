#include "npu_train/core/config_table.hpp"

#include <algorithm>
#include <cmath>

#include "core/scalar.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

// Returns a hint for an empty text. The hint depends on the source, because a shell removes unescaped quotes.
std::string empty_text_hint(const ConfigNode& node, const std::string& path) {
  return node.mark().source == "command line" ? "in a shell, an empty text is '" + path + "=\"\"'" : "write \"\" for an empty text";
}

std::string shown(const ConfigNode& node) {
  constexpr size_t kLongest = 60;
  switch (node.kind()) {
    case ConfigNode::Kind::Null:
      return "nothing (null)";
    case ConfigNode::Kind::List:
      return "a list of " + std::to_string(node.items().size());
    case ConfigNode::Kind::Map:
      return "a map";
    case ConfigNode::Kind::Scalar:
      break;
  }
  auto text = node.scalar().substr(0, kLongest);
  for (auto& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return "'" + text + (node.scalar().size() > kLongest ? "...'" : "'");
}

std::string with_allowed(std::string message, const Bounds& bounds) {
  const auto allowed = bounds.str();
  return allowed.empty() ? message : message + "; allowed: " + allowed;
}

std::string with_hint(std::string message, const std::string& hint) { return hint.empty() ? message : message + "; hint: " + hint; }

bool inside(double value, const Bounds& bounds) {
  const bool bounded = std::isfinite(bounds.lo) || std::isfinite(bounds.hi);
  return !std::isnan(value) && !(bounded && std::isinf(value)) && value <= bounds.hi &&
         (bounds.lo_open ? value > bounds.lo : value >= bounds.lo);
}

void report_out_of_range(const ConfigNode& node, const std::string& path, const Bounds& bounds, ConfigProblems& problems,
                         const std::string& hint = "") {
  problems.add(node.mark(), path, with_hint(with_allowed(shown(node) + " is out of range", bounds), hint));
}

// Returns a hint with the choice that the user probably meant; "" if none is near.
std::string meant_choice(const std::string& given, const Bounds& bounds) {
  for (const auto& [other, name] : bounds.other_names)
    if (to_lower(other) == to_lower(given)) return "; the name here is " + name;
  const auto near = nearest_name(given, bounds.choices);
  return near.empty() ? "" : ", did you mean '" + near + "'?";
}

bool is_choice(const std::string& text, const Bounds& bounds) {
  return bounds.choices.empty() || std::find(bounds.choices.begin(), bounds.choices.end(), text) != bounds.choices.end();
}

void report_no_choice(const ConfigNode& node, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  problems.add(node.mark(), path, shown(node) + " is not known" + meant_choice(node.scalar(), bounds) + "; allowed: " + bounds.str());
}

std::string infinity_hint(double value) { return std::isinf(value) ? "it must be finite" : ""; }

bool is_plain_scalar(const ConfigNode& node) { return node.is_scalar() && !node.quoted(); }

// Returns a hint with the integer that the user probably meant.
std::string integer_hint(const ConfigNode& node) {
  if (!node.is_scalar()) return "";
  const auto& text = node.scalar();
  if (node.quoted()) return detail::parse_integer(text) ? "leave out the quotes" : "";
  auto digits = text;
  std::erase_if(digits, [](char c) { return c == '_' || c == ','; });
  if (digits != text && detail::parse_integer(digits)) return "write " + digits;
  if (text.starts_with("0x") || text.starts_with("0o") || text.starts_with("0b")) return "integers are decimal";
  const auto number = detail::parse_number(text);
  if (number && std::floor(*number) == *number && std::abs(*number) < 9e15) return "write " + std::to_string(static_cast<int64_t>(*number));
  return "";
}

bool read_integer(const ConfigNode& node, const std::string& path, const Bounds& bounds, int64_t lowest, int64_t highest, int64_t& out,
                  ConfigProblems& problems) {
  const auto value = is_plain_scalar(node) ? detail::parse_integer(node.scalar()) : std::nullopt;
  if (!value) {
    problems.add(node.mark(), path, with_hint(with_allowed(shown(node) + " is not an integer", bounds), integer_hint(node)));
    return false;
  }
  if (*value < lowest || *value > highest) {
    problems.add(node.mark(), path,
                 shown(node) + " is out of range; allowed: between " + with_commas(lowest) + " and " + with_commas(highest));
    return false;
  }
  if (!inside(static_cast<double>(*value), bounds)) {
    report_out_of_range(node, path, bounds, problems);
    return false;
  }
  out = *value;
  return true;
}

template <class T>
bool read_list(const ConfigNode& node, const std::string& path, const Bounds& bounds, std::vector<T>& out, ConfigProblems& problems) {
  if (!node.is_list()) {
    problems.add(node.mark(), path,
                 with_hint(shown(node) + " is not a list", node.is_scalar() ? "write [" + node.scalar().substr(0, 60) + "]"
                                                           : node.is_null() ? "write [] for an empty list"
                                                                            : ""));
    return false;
  }
  std::vector<T> values(node.items().size());
  bool good = true;
  for (size_t i = 0; i < values.size(); ++i) {
    good = detail::read_value(node.items()[i], path + "." + std::to_string(i), bounds, values[i], problems) && good;
  }
  if (good) out = std::move(values);
  return good;
}

/// Returns a hint if other programs use the name `key`: the key of section `path` with the same meaning, or else, if only one key of all
/// sections has that meaning, this key. Otherwise returns "".
std::string meant_key(const std::string& key, const std::string& path, const std::vector<std::string>& names) {
  const auto keys = keys_called(key);
  for (const auto& full : keys) {
    const auto dot = std::min(full.rfind('.'), full.size());
    const auto leaf = dot < full.size() ? full.substr(dot + 1) : full;
    const bool exists = leaf == "name" || std::find(names.begin(), names.end(), leaf) != names.end();
    if (exists && full.substr(0, dot < full.size() ? dot : 0) == path) return "the name here is " + leaf;
  }
  return keys.size() == 1 ? "the key is " + keys.front() : "";
}

std::string unknown_key(const std::string& key, const std::string& path, const std::vector<detail::Field>& fields,
                        const std::vector<std::pair<std::string, std::string>>& synonyms) {
  for (const auto& [other, field] : synonyms) {
    if (to_lower(other) == to_lower(key)) return "no such key; the name here is " + field;
  }
  std::vector<std::string> names;
  for (const auto& field : fields) names.push_back(field.info.name);
  if (const auto meant = meant_key(key, path, names); !meant.empty()) return "no such key; " + meant;
  if (names.empty()) return "no such key; no keys are allowed";
  const auto near = nearest_name(key, names);
  return "no such key; " + (near.empty() ? "allowed: " : "did you mean '" + near + "'? Allowed: ") + join(nearest_first(key, names));
}

std::string child(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

}  // namespace

std::string Bounds::str() const {
  if (!choices.empty()) return "one of: " + join(choices);
  const bool low = lo > -std::numeric_limits<double>::infinity();
  const bool high = hi < std::numeric_limits<double>::infinity();
  if (low && high && !lo_open) return "between " + shortest(lo) + " and " + shortest(hi);
  std::string out;
  if (low) out = (lo_open ? "more than " : "at least ") + shortest(lo);
  if (high) out += (low ? " and at most " : "at most ") + shortest(hi);
  return out;
}

void ConfigProblems::throw_if_any() const {
  if (problems_.empty()) return;
  std::string message;
  if (problems_.size() > 1) message = std::to_string(problems_.size()) + " errors";
  for (const auto& problem : problems_) {
    if (problems_.size() > 1) message += "\n  ";
    message += problem.mark.str() + ": " + (problem.path.empty() ? "" : problem.path + ": ") + problem.message;
  }
  throw Error(ErrorKind::Usage, "config", message);
}

namespace detail {
namespace {

template <class T>
bool check_list(const std::vector<T>& values, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  bool good = true;
  for (size_t i = 0; i < values.size(); ++i) good = check_value(values[i], path + "." + std::to_string(i), bounds, problems) && good;
  return good;
}

template <class T>
ConfigNode write_list(const std::vector<T>& values) {
  auto node = ConfigNode::list({});
  for (const auto& value : values) node.push_back(write_value(value));
  return node;
}

}  // namespace

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, bool& out, ConfigProblems& problems) {
  if (is_plain_scalar(node) && (node.scalar() == "true" || node.scalar() == "false")) {
    out = node.scalar() == "true";
    return true;
  }
  std::string hint;
  const auto word = node.is_scalar() ? to_lower(node.scalar()) : "";
  if (word == "yes" || word == "on" || word == "y" || word == "1" || word == "true")
    hint = node.quoted() && word == "true" ? "leave out the quotes" : "write true";
  if (word == "no" || word == "off" || word == "n" || word == "0" || word == "false")
    hint = node.quoted() && word == "false" ? "leave out the quotes" : "write false";
  problems.add(node.mark(), path, with_hint(shown(node) + " is not true or false", hint));
  return false;
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, int& out, ConfigProblems& problems) {
  int64_t wide = 0;
  if (!read_integer(node, path, bounds, std::numeric_limits<int>::min(), std::numeric_limits<int>::max(), wide, problems)) return false;
  out = static_cast<int>(wide);
  return true;
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, int64_t& out, ConfigProblems& problems) {
  return read_integer(node, path, bounds, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), out, problems);
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, double& out, ConfigProblems& problems) {
  const auto value = is_plain_scalar(node) ? parse_number(node.scalar()) : std::nullopt;
  if (!value) {
    const bool quotes = node.is_scalar() && node.quoted() && parse_number(node.scalar());
    problems.add(node.mark(), path,
                 with_hint(with_allowed(shown(node) + " is not a number", bounds), quotes ? "leave out the quotes" : ""));
    return false;
  }
  if (!inside(*value, bounds)) {
    report_out_of_range(node, path, bounds, problems, infinity_hint(*value));
    return false;
  }
  out = *value;
  return true;
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, std::string& out, ConfigProblems& problems) {
  if (!node.is_scalar()) {
    problems.add(node.mark(), path,
                 with_hint(with_allowed(shown(node) + " is not text", bounds), node.is_null() ? empty_text_hint(node, path) : ""));
    return false;
  }
  if (!is_choice(node.scalar(), bounds)) {
    report_no_choice(node, path, bounds, problems);
    return false;
  }
  out = node.scalar();
  return true;
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, std::vector<int64_t>& out,
                ConfigProblems& problems) {
  return read_list(node, path, bounds, out, problems);
}
bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, std::vector<double>& out, ConfigProblems& problems) {
  return read_list(node, path, bounds, out, problems);
}
bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, std::vector<std::string>& out,
                ConfigProblems& problems) {
  return read_list(node, path, bounds, out, problems);
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, PartConfig& out, ConfigProblems& problems) {
  if (node.is_null()) {
    out = {};
    out.mark = node.mark();
    return true;
  }
  PartConfig part;
  part.mark = node.mark();
  if (node.is_scalar()) {
    if (!read_value(node, path, bounds, part.name, problems)) return false;
  } else if (node.is_map()) {
    const auto* name = node.find("name");
    if (!name && out.name.empty()) {
      problems.add(node.mark(), path, with_allowed("the key 'name' is missing", bounds));
      return false;
    }
    if (name) part.mark = name->mark();
    part.name = out.name;
    if (name && !read_value(*name, child(path, "name"), bounds, part.name, problems)) return false;
    if (part.name == out.name) part.options = out.options;  // a part that stays the same keeps its default options
    part.options.set_mark(node.mark());
    for (const auto& member : node.members()) {
      if (member.key != "name") part.options.put(member);
    }
  } else {
    problems.add(node.mark(), path,
                 shown(node) + " is neither a name nor a map with a name, as in {name: " + (out.name.empty() ? "..." : out.name) + "}");
    return false;
  }
  out = std::move(part);
  return true;
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, std::vector<PartConfig>& out,
                ConfigProblems& problems) {
  return read_list(node, path, bounds, out, problems);
}

bool read_value(const ConfigNode& node, const std::string& path, const Bounds& bounds, NamedParts& out, ConfigProblems& problems) {
  out.clear();
  if (node.is_null()) return true;
  if (!node.is_map()) {
    problems.add(node.mark(), path, shown(node) + " is not a map of parts by name, as in {generator: {name: ...}}");
    return false;
  }
  bool good = true;
  for (const auto& member : node.members()) {
    out.emplace_back(member.key, PartConfig{});
    good = read_value(member.value, child(path, member.key), bounds, out.back().second, problems) && good;
  }
  return good;
}

bool check_value(bool, const std::string&, const Bounds&, ConfigProblems&) { return true; }
bool check_value(int value, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  return check_value(static_cast<int64_t>(value), path, bounds, problems);
}
bool check_value(int64_t value, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  const bool good = inside(static_cast<double>(value), bounds);
  if (!good) report_out_of_range(value, path, bounds, problems);
  return good;
}
bool check_value(double value, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  const bool good = inside(value, bounds);
  if (!good) report_out_of_range(value, path, bounds, problems, infinity_hint(value));
  return good;
}
bool check_value(const std::string& value, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  const bool good = is_choice(value, bounds);
  if (!good) report_no_choice(value, path, bounds, problems);
  return good;
}
bool check_value(const std::vector<int64_t>& values, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  return check_list(values, path, bounds, problems);
}
bool check_value(const std::vector<double>& values, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  return check_list(values, path, bounds, problems);
}
bool check_value(const std::vector<std::string>& values, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  return check_list(values, path, bounds, problems);
}
// Accepts any options, because the registry of the part checks them. A part without a name was not given, and is accepted.
bool check_value(const PartConfig& part, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  return part.name.empty() || check_value(part.name, child(path, "name"), bounds, problems);
}
bool check_value(const std::vector<PartConfig>& parts, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  return check_list(parts, path, bounds, problems);
}

bool check_value(const NamedParts& parts, const std::string& path, const Bounds& bounds, ConfigProblems& problems) {
  bool good = true;
  for (const auto& [name, part] : parts) good = check_value(part, child(path, name), bounds, problems) && good;
  return good;
}

ConfigNode write_value(bool value) { return value; }
ConfigNode write_value(int value) { return value; }
ConfigNode write_value(int64_t value) { return value; }
ConfigNode write_value(double value) { return value; }
ConfigNode write_value(const std::string& value) { return value; }
ConfigNode write_value(const std::vector<int64_t>& values) { return write_list(values); }
ConfigNode write_value(const std::vector<double>& values) { return write_list(values); }
ConfigNode write_value(const std::vector<std::string>& values) { return write_list(values); }

ConfigNode write_value(const PartConfig& part) {
  if (part.name.empty()) return {};
  // Keeps the marks, so that errors from another reading of this node show the positions in the source.
  auto node = ConfigNode::map();
  ConfigNode::Member name{"name", part.mark, part.name};
  name.value.set_mark(part.mark);
  node.put(std::move(name));
  for (const auto& member : part.options.members()) node.put(member);
  node.set_mark(part.mark);
  return node;
}

ConfigNode write_value(const std::vector<PartConfig>& parts) { return write_list(parts); }

ConfigNode write_value(const NamedParts& parts) {
  auto node = ConfigNode::map();
  for (const auto& [name, part] : parts) {
    ConfigNode::Member member;
    member.key = name;
    member.key_mark = part.mark;
    member.value = write_value(part);
    node.put(std::move(member));
  }
  return node;
}

std::string type_name(const bool*) { return "true | false"; }
std::string type_name(const int*) { return "integer"; }
std::string type_name(const int64_t*) { return "integer"; }
std::string type_name(const double*) { return "number"; }
std::string type_name(const std::string*) { return "text"; }
std::string type_name(const std::vector<int64_t>*) { return "list of integers"; }
std::string type_name(const std::vector<double>*) { return "list of numbers"; }
std::string type_name(const std::vector<std::string>*) { return "list of texts"; }
std::string type_name(const PartConfig*) { return "part"; }
std::string type_name(const std::vector<PartConfig>*) { return "list of parts"; }
std::string type_name(const NamedParts*) { return "map of parts"; }

void bind_fields(const std::vector<Field>& fields, const std::vector<std::pair<std::string, std::string>>& synonyms, void* object,
                 const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
  if (node.is_null()) return;  // an empty file or section means all defaults
  if (!node.is_map()) {
    std::vector<std::string> names;
    for (const auto& field : fields) names.push_back(field.info.name);
    problems.add(node.mark(), path, shown(node) + " is not a map of keys and values (key: value); allowed: " + join(names));
    return;
  }
  for (const auto& member : node.members()) {
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.info.name == member.key; });
    if (field == fields.end()) {
      problems.add(member.key_mark, child(path, member.key), unknown_key(member.key, path, fields, synonyms));
    } else {
      field->read(object, member.value, child(path, member.key), problems);
    }
  }
}

void copy_fields(const std::vector<Field>& fields, void* object, const void* given, const std::string& path, ConfigProblems& problems) {
  for (const auto& field : fields) field.copy(object, given, child(path, field.info.name), problems);
}

ConfigNode write_fields(const std::vector<Field>& fields, const void* object) {
  auto node = ConfigNode::map();
  for (const auto& field : fields) {
    ConfigNode::Member member;
    member.key = field.info.name;
    member.value = field.write(object);
    node.put(std::move(member));
  }
  return node;
}

}  // namespace detail
}  // namespace npu_train
