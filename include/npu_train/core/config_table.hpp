/// Binds plain structs to configuration text. One table per struct provides parsing with errors, --print-config and the docs. It exists
/// because yaml-cpp only parses: that library silently keeps the first of two equal keys, and has no bounds, no defaults and no list of
/// known keys.
///
/// A struct becomes configurable by naming its table:
///   struct SgdOptions {
///     double lr = 0.1;        // learning rate at schedule factor 1
///     double momentum = 0.9;
///     static const ConfigTable<SgdOptions>& config_table();
///   };
///   const ConfigTable<SgdOptions>& SgdOptions::config_table() {
///     static const auto table = ConfigTable<SgdOptions>("optimizer sgd")
///         .field("lr", &SgdOptions::lr, "learning rate", at_least(0.0))
///         .field("momentum", &SgdOptions::momentum, "momentum factor", between(0.0, 1.0));
///     return table;
///   }
///   auto options = bind<SgdOptions>(node, "optimizer");   // Error(Usage) lists all errors at once
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {

/// Limits of a value. Numbers: lo <= value <= hi (or lo < value), and finite if there is a bound. Text: one of `choices`. Lists: limits of
/// each item.
struct Bounds {
  double lo = -std::numeric_limits<double>::infinity();
  double hi = std::numeric_limits<double>::infinity();
  bool lo_open = false;
  std::vector<std::string> choices = {};
  /// Pairs of a choice's name in other tools and its name here. The other name is rejected with a hint ("the name here is module").
  std::vector<std::pair<std::string, std::string>> other_names = {};
  /// Returns "at least 1", "one of: a, b"; "" without a limit.
  std::string str() const;
};
inline Bounds any_value() { return {}; }
inline Bounds at_least(double lo) { return {.lo = lo}; }
inline Bounds more_than(double lo) { return {.lo = lo, .lo_open = true}; }
inline Bounds between(double lo, double hi) { return {.lo = lo, .hi = hi}; }
inline Bounds one_of(std::vector<std::string> choices, std::vector<std::pair<std::string, std::string>> other_names = {}) {
  return {.choices = std::move(choices), .other_names = std::move(other_names)};
}

/// A part that is selected by name and has its own options: `{name: sgd, lr: 0.1}`. The registry of the part binds `options`.
struct PartConfig {
  std::string name{};                      ///< "" if not given
  ConfigNode options = ConfigNode::map();  ///< all keys except the name
  Mark mark{};                             ///< position of the name, or of the part if it has no name
};

/// Parts by the name of their purpose: `{generator: {name: adam, lr: 1.0e-4}, critic: sgd}`.
using NamedParts = std::vector<std::pair<std::string, PartConfig>>;

/// One error found while binding.
struct ConfigProblem {
  Mark mark;
  std::string path;     ///< "trainer.max_epochs"
  std::string message;  ///< given value, allowed values, nearest name
};

/// Collects errors and throws them together as one Error(Usage).
class ConfigProblems {
 public:
  void add(const Mark& mark, const std::string& path, const std::string& message) { problems_.push_back({mark, path, message}); }
  bool empty() const { return problems_.empty(); }
  const std::vector<ConfigProblem>& all() const { return problems_; }
  void throw_if_any() const;

 private:
  std::vector<ConfigProblem> problems_;
};

/// Describes a field for the docs, the errors and --print-config.
struct FieldInfo {
  std::string name;
  std::string type;  ///< "integer", "number", "true | false", "text", "list of integers", "section", "part", "list of parts", "map of
                     ///< parts", "list of sections"
  std::string doc;
  std::string allowed;              ///< text of Bounds::str()
  std::string default_text;         ///< default value as YAML
  std::vector<FieldInfo> children;  ///< fields of a section
};

namespace detail {
// Convert text to a value, for every type that a field may have; defined in config_table.cpp.
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, bool&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, int&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, int64_t&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, double&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, std::string&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, std::vector<int64_t>&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, std::vector<double>&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, std::vector<std::string>&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, PartConfig&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, std::vector<PartConfig>&, ConfigProblems&);
bool read_value(const ConfigNode&, const std::string& path, const Bounds&, NamedParts&, ConfigProblems&);
// Return whether a value is within its limits. If it is not, report the problem that read_value() would report for the same value in a
// text.
bool check_value(bool, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(int, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(int64_t, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(double, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(const std::string&, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(const std::vector<int64_t>&, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(const std::vector<double>&, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(const std::vector<std::string>&, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(const PartConfig&, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(const std::vector<PartConfig>&, const std::string& path, const Bounds&, ConfigProblems&);
bool check_value(const NamedParts&, const std::string& path, const Bounds&, ConfigProblems&);
ConfigNode write_value(bool);
ConfigNode write_value(int);
ConfigNode write_value(int64_t);
ConfigNode write_value(double);
ConfigNode write_value(const std::string&);
ConfigNode write_value(const std::vector<int64_t>&);
ConfigNode write_value(const std::vector<double>&);
ConfigNode write_value(const std::vector<std::string>&);
ConfigNode write_value(const PartConfig&);
ConfigNode write_value(const std::vector<PartConfig>&);
ConfigNode write_value(const NamedParts&);
std::string type_name(const bool*);
std::string type_name(const int*);
std::string type_name(const int64_t*);
std::string type_name(const double*);
std::string type_name(const std::string*);
std::string type_name(const std::vector<int64_t>*);
std::string type_name(const std::vector<double>*);
std::string type_name(const std::vector<std::string>*);
std::string type_name(const PartConfig*);
std::string type_name(const std::vector<PartConfig>*);
std::string type_name(const NamedParts*);

/// A field with its type erased; `object` points to the struct.
struct Field {
  FieldInfo info;
  std::function<void(void* object, const ConfigNode&, const std::string& path, ConfigProblems&)> read;
  std::function<void(void* object, const void* given, const std::string& path, ConfigProblems&)> copy;
  std::function<ConfigNode(const void* object)> write;
};
/// Binds a map to fields. Unknown keys become problems that name the nearest key; keys in `synonyms` become problems that name the right
/// key.
void bind_fields(const std::vector<Field>& fields, const std::vector<std::pair<std::string, std::string>>& synonyms, void* object,
                 const ConfigNode& node, const std::string& path, ConfigProblems& problems);
void copy_fields(const std::vector<Field>& fields, void* object, const void* given, const std::string& path, ConfigProblems& problems);
ConfigNode write_fields(const std::vector<Field>& fields, const void* object);
}  // namespace detail

template <class T>
concept Configurable = requires {
  T::config_table();
};

/// The fields of one struct. `T` must be default constructible; its initial values are the defaults of the fields.
template <class T>
class ConfigTable {
 public:
  explicit ConfigTable(std::string title) : title_(std::move(title)) {}

  template <class V>
  ConfigTable& field(const std::string& name, V T::*member, const std::string& doc, Bounds bounds = {});

  /// Declares a name that other tools use for `field`. A user who writes that name gets an error with a hint ("epochs: the name here is
  /// max_epochs").
  ConfigTable& synonym(const std::string& other, const std::string& field) {
    synonyms_.emplace_back(other, field);
    return *this;
  }

  /// Adds the fields and synonyms of a base class of T.
  template <class Base>
  ConfigTable& inherited();

  const std::string& title() const { return title_; }
  const std::vector<detail::Field>& fields() const { return fields_; }
  const std::vector<std::pair<std::string, std::string>>& synonyms() const { return synonyms_; }
  /// `defaults` are the values of the keys that a user omits.
  std::vector<FieldInfo> describe(const T& defaults = {}) const;

 private:
  std::string title_;
  std::vector<detail::Field> fields_;
  std::vector<std::pair<std::string, std::string>> synonyms_;
};

/// Sets the fields of `object` that `node` contains, and adds errors to `problems`.
template <Configurable T>
void bind_into(T& object, const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
  detail::bind_fields(T::config_table().fields(), T::config_table().synonyms(), &object, node, path, problems);
}

/// Reads `node` over the defaults of T. Error(Usage) lists all errors, each with file, line, column, given value, allowed values and
/// nearest name.
template <Configurable T>
T bind(const ConfigNode& node, const std::string& path = "") {
  T object;
  ConfigProblems problems;
  bind_into(object, node, path, problems);
  problems.throw_if_any();
  return object;
}

/// Copies `given`, a struct that was filled in code, to `object`. A value outside of its limits is not copied, but becomes a problem, with
/// the message that the same value in a text would get.
template <Configurable T>
void bind_into(T& object, const T& given, const std::string& path, ConfigProblems& problems) {
  detail::copy_fields(T::config_table().fields(), &object, &given, path, problems);
}

/// Applies the checks of bind() to a struct that was filled in code. Error(Usage) with all errors.
template <Configurable T>
void check_limits(const T& given, const std::string& path) {
  T sound;
  ConfigProblems problems;
  bind_into(sound, given, path, problems);
  problems.throw_if_any();
}

/// Returns the complete struct as a node, including defaults.
template <Configurable T>
ConfigNode to_node(const T& object) {
  return detail::write_fields(T::config_table().fields(), &object);
}

namespace detail {

/// Reads a list of sections: each item over the defaults of T.
template <Configurable T>
void read_sections(const ConfigNode& node, const std::string& path, std::vector<T>& out, ConfigProblems& problems) {
  out.clear();
  if (node.is_null()) return;
  if (!node.is_list()) return problems.add(node.mark(), path, "not a list of maps, as in [{key: value}, {key: value}]");
  for (size_t i = 0; i < node.items().size(); ++i) bind_into(out.emplace_back(), node.items()[i], path + "." + std::to_string(i), problems);
}
template <Configurable T>
void copy_sections(const std::vector<T>& given, const std::string& path, std::vector<T>& out, ConfigProblems& problems) {
  out.clear();
  for (size_t i = 0; i < given.size(); ++i) bind_into(out.emplace_back(), given[i], path + "." + std::to_string(i), problems);
}
template <Configurable T>
ConfigNode write_sections(const std::vector<T>& sections) {
  auto out = ConfigNode::list({});
  for (const auto& section : sections) out.push_back(to_node(section));
  return out;
}
template <class V>
inline constexpr bool is_section_list = false;
template <Configurable T>
inline constexpr bool is_section_list<std::vector<T>> = true;

}  // namespace detail

template <class T>
template <class V>
ConfigTable<T>& ConfigTable<T>::field(const std::string& name, V T::*member, const std::string& doc, Bounds bounds) {
  detail::Field f;
  f.info = {.name = name, .type = {}, .doc = doc, .allowed = bounds.str(), .default_text = {}, .children = {}};
  if constexpr (Configurable<V>) {
    f.info.type = "section";
    f.info.children = V::config_table().describe();
    f.read = [member](void* object, const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
      bind_into(static_cast<T*>(object)->*member, node, path, problems);
    };
    f.copy = [member](void* object, const void* given, const std::string& path, ConfigProblems& problems) {
      bind_into(static_cast<T*>(object)->*member, static_cast<const T*>(given)->*member, path, problems);
    };
    f.write = [member](const void* object) { return to_node(static_cast<const T*>(object)->*member); };
  } else if constexpr (detail::is_section_list<V>) {
    f.info.type = "list of sections";
    f.info.children = V::value_type::config_table().describe();
    f.read = [member](void* object, const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
      detail::read_sections(node, path, static_cast<T*>(object)->*member, problems);
    };
    f.copy = [member](void* object, const void* given, const std::string& path, ConfigProblems& problems) {
      detail::copy_sections(static_cast<const T*>(given)->*member, path, static_cast<T*>(object)->*member, problems);
    };
    f.write = [member](const void* object) { return detail::write_sections(static_cast<const T*>(object)->*member); };
  } else {
    f.info.type = detail::type_name(static_cast<const V*>(nullptr));
    f.read = [member, bounds](void* object, const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
      detail::read_value(node, path, bounds, static_cast<T*>(object)->*member, problems);
    };
    f.copy = [member, bounds](void* object, const void* given, const std::string& path, ConfigProblems& problems) {
      const auto& value = static_cast<const T*>(given)->*member;
      if (detail::check_value(value, path, bounds, problems)) static_cast<T*>(object)->*member = value;
    };
    f.write = [member](const void* object) { return detail::write_value(static_cast<const T*>(object)->*member); };
  }
  fields_.push_back(std::move(f));
  return *this;
}

template <class T>
template <class Base>
ConfigTable<T>& ConfigTable<T>::inherited() {
  for (auto f : Base::config_table().fields()) {
    f.read = [read = f.read](void* object, const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
      read(static_cast<Base*>(static_cast<T*>(object)), node, path, problems);
    };
    f.copy = [copy = f.copy](void* object, const void* given, const std::string& path, ConfigProblems& problems) {
      copy(static_cast<Base*>(static_cast<T*>(object)), static_cast<const Base*>(static_cast<const T*>(given)), path, problems);
    };
    f.write = [write = f.write](const void* object) { return write(static_cast<const Base*>(static_cast<const T*>(object))); };
    fields_.push_back(std::move(f));
  }
  const auto& others = Base::config_table().synonyms();
  synonyms_.insert(synonyms_.end(), others.begin(), others.end());
  return *this;
}

template <class T>
std::vector<FieldInfo> ConfigTable<T>::describe(const T& defaults) const {
  std::vector<FieldInfo> out;
  for (const auto& f : fields_) {
    out.push_back(f.info);
    if (f.info.type != "section") out.back().default_text = to_yaml_line(f.write(&defaults));
  }
  return out;
}

}  // namespace npu_train
