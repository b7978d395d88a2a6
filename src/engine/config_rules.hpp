// The rules that no table contains: keys that must be consistent with each other, and texts with a grammar of their own.
#pragma once

#include <functional>
#include <string>

#include "npu_train/engine/run_config.hpp"

namespace npu_train::detail {

/// The loader options for data that are given in code.
struct PlainDataOptions : DataOptions {
  static const ConfigTable<PlainDataOptions>& config_table();
};

/// Where the value of a key is written ("trainer.on_oom").
using MarkOf = std::function<Mark(const std::string& path)>;

/// Adds inconsistencies between keys to `problems`. Opens no file and no device. `config` has passed its table; its parts are as
/// written.
void check_rules(const RunConfig& config, const Parts& parts, const MarkOf& mark_of, ConfigProblems& problems);

/// Whether `name` in `registry` is the library's own part, not one by which a program replaced it: only the library's own part is known to
/// be constructible without side effects, for a check of its options.
template <class R>
bool is_own_part(const R& registry, const R& own, const std::string& name) {
  return own.contains(name) && registry.contains(name) && own.doc(name) == registry.doc(name);
}

/// The value of an option; "" if it is open or not a single value.
std::string option_text(const ConfigNode& options, const std::string& key);

/// The options of each transform of `data` filled in, if `transforms` contains it; errors go to `problems`.
void resolve_transforms(ConfigNode& data, const TransformRegistry& transforms, ConfigProblems& problems);

}  // namespace npu_train::detail
