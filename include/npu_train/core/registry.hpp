/// Maps names of parts to factories. Registries are values, filled by explicit calls; there is no static registration.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {

/// The options of a part without options.
struct NoOptions {
  static const ConfigTable<NoOptions>& config_table() {
    static const ConfigTable<NoOptions> table("no options");
    return table;
  }
};

namespace detail {

/// Calls `factory` with the options and the longest prefix of `args` that it accepts.
template <size_t N, class Product, class Options, class Fn, class Args>
Product call_factory(const Fn& factory, Options&& options, const Args& args) {
  return [&]<size_t... I>(std::index_sequence<I...>)->Product {
    if constexpr (N == 0 || std::is_invocable_v<const Fn&, Options, std::tuple_element_t<I, Args>...>)
      return factory(std::forward<Options>(options), std::get<I>(args)...);
    else
      return call_factory<N - 1, Product>(factory, std::forward<Options>(options), args);
  }
  (std::make_index_sequence<N>{});
}

}  // namespace detail

/// Maps names to factory(options, args...) -> Product; a factory may omit trailing arguments. Each entry binds its own options struct, so a
/// user's part has configuration keys, too:
///   parts.models.add<MyNetOptions>("my_net", "my own network", [](const MyNetOptions& options) { return my_net(options); });
template <class Product, class... Args>
class Registry {
 public:
  /// Messages call the part `kind` ("model", "data set"). Their hint is `hint`, which explains how a program adds a part.
  explicit Registry(std::string kind, std::string hint = "") : kind_(std::move(kind)), hint_(std::move(hint)) {}

  /// Adds a part, or replaces the part of that name, so that a user's part can override a built-in one. `defaults` are the values of the
  /// options that a configuration does not set. For example, each named size of a network is an entry with its own defaults.
  template <Configurable Options, class Fn>
  void add(const std::string& name, const std::string& doc, Fn factory, const Options& defaults = {}) {
    entries_[name] =
        Entry{doc,
              [factory, defaults](const ConfigNode& node, const std::string& path, Args... args) -> Product {
                auto options = defaults;
                ConfigProblems problems;
                bind_into(options, node, path, problems);
                problems.throw_if_any();
                return detail::call_factory<sizeof...(Args), Product>(factory, std::move(options), std::forward_as_tuple(args...));
              },
              [defaults](const ConfigNode& node, const std::string& path, ConfigProblems& problems) {
                auto options = defaults;
                bind_into(options, node, path, problems);
                return to_node(options);
              },
              [defaults] { return Options::config_table().describe(defaults); }};
  }

  bool contains(const std::string& name) const { return entries_.count(name) != 0; }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, entry] : entries_) out.push_back(name);
    return out;
  }
  const std::string& doc(const std::string& name) const { return entry(name, {}, "").doc; }
  std::vector<FieldInfo> describe(const std::string& name) const { return entry(name, {}, "").describe(); }

  /// Creates the part. Error(Usage) for invalid options, and for an unknown name; in that case, the message lists all names, nearest first.
  Product make(const PartConfig& part, const std::string& path, Args... args) const {
    return entry(part.name, part.mark, path).make(part.options, path, args...);
  }

  /// Returns the part's options with defaults filled in, without creating the part; errors go to `problems`.
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
    auto out = "no " + kind_ + " has the name '" + name + "'";
    if (entries_.empty()) out += "; this program has none";
    if (!near.empty()) out += "; did you mean '" + near + "'?";
    if (!entries_.empty()) out += (near.empty() ? ". There are: " : " There are: ") + join(nearest_first(name, names()));
    return out + (hint_.empty() ? "" : "; hint: " + hint_);
  }
  const Entry& entry(const std::string& name, const Mark& mark, const std::string& path) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) throw Error(ErrorKind::Usage, mark.line > 0 ? mark.str() : (path.empty() ? kind_ : path), unknown(name));
    return found->second;
  }

  std::string kind_, hint_;
  std::map<std::string, Entry> entries_;
};

}  // namespace npu_train
