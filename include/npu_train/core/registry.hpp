/// Names of parts and their factories. Registries are values, filled by explicit calls; nothing registers itself.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {

/// For parts without options.
struct NoOptions {
  static const ConfigTable<NoOptions>& config_table() {
    static const ConfigTable<NoOptions> table("no options");
    return table;
  }
};

/// name -> factory(options, args...) -> Product. Each entry binds its own options struct, so a user's part also has keys:
///   parts.models.add<MyNetOptions>("my_net", "my own network", [](const MyNetOptions& options) { return my_net(options); });
template <class Product, class... Args>
class Registry {
 public:
  /// `kind` is the word for the part in messages: "model", "data set".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  /// Adds a part. Adding a name again replaces the earlier part, so a user's part overrides a built-in one.
  template <Configurable Options, class Fn>
  void add(const std::string& name, const std::string& doc, Fn factory) {
    entries_[name] = Entry{doc,
                           [factory](const ConfigNode& node, const std::string& path, Args... args) -> Product {
                             return factory(bind<Options>(node, path), args...);
                           },
                           [](const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
                             Options options;
                             bind_into(options, node, path, problems);
                             return to_node(options);
                           },
                           [] { return Options::config_table().describe(); }};
  }

  bool contains(const std::string& name) const { return entries_.count(name) != 0; }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, entry] : entries_) out.push_back(name);
    return out;
  }
  const std::string& doc(const std::string& name) const { return entry(name, {}, "").doc; }
  std::vector<FieldInfo> describe(const std::string& name) const { return entry(name, {}, "").describe(); }

  /// Makes the part. Error(Usage) for an unknown name (with the nearest and all names) or bad options.
  Product make(const PartConfig& part, const std::string& path, Args... args) const {
    return entry(part.name, part.mark, path).make(part.options, path, args...);
  }

  /// The part's options with defaults filled in, without making it; errors go to `problems`.
  PartConfig resolve(const PartConfig& part, const std::string& path, ConfigProblems& problems) const {
    const auto found = entries_.find(part.name);
    if (found == entries_.end()) {
      problems.add(part.mark, path + ".name", unknown(part.name));
      return part;
    }
    return {part.name, found->second.resolve(part.options, path, problems), part.mark};
  }

 private:
  struct Entry {
    std::string doc;
    std::function<Product(const ConfigNode&, const std::string& path, Args...)> make;
    std::function<ConfigNode(const ConfigNode&, const std::string& path, ConfigProblems&)> resolve;
    std::function<std::vector<FieldInfo>()> describe;
  };

  std::string unknown(const std::string& name) const {
    const auto near = nearest_name(name, names());
    return "no " + kind_ + " has the name '" + name + "'" + (near.empty() ? "" : "; did you mean '" + near + "'?") +
           " There are: " + join(names());
  }
  const Entry& entry(const std::string& name, const Mark& mark, const std::string& path) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) throw Error(ErrorKind::Usage, mark.line > 0 ? mark.str() : (path.empty() ? kind_ : path), unknown(name));
    return found->second;
  }

  std::string kind_;
  std::map<std::string, Entry> entries_;
};

}  // namespace npu_train
