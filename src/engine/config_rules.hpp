// Rules beyond the tables: consistency between keys, and values with a syntax of their own.
#pragma once

#include <functional>
#include <string>

#include "npu_train/engine/run_config.hpp"

namespace npu_train::detail {

/// Loader options for data given in code.
struct PlainDataOptions : DataOptions {
  static const ConfigTable<PlainDataOptions>& config_table();
};

/// Returns the position at which the value of a key ("trainer.on_oom") was written.
using MarkOf = std::function<Mark(const std::string& path)>;

/// Adds inconsistencies between keys to `problems`. Opens no file and no device. `config` has passed its table; its parts are unresolved.
void check_rules(const RunConfig& config, const Parts& parts, const MarkOf& mark_of, ConfigProblems& problems);

/// Returns whether the part `name` in `registry` is the library's own, not a replacement by the program. To check options, only the
/// library's own part may be made: it is known to have no side effects.
template <class R>
bool is_own_part(const R& registry, const R& own, const std::string& name) {
  return own.contains(name) && registry.contains(name) && own.doc(name) == registry.doc(name);
}

/// Returns the value of an option; "" if it is not set, or not a scalar.
std::string option_text(const ConfigNode& options, const std::string& key);

/// Fills in the options of each transform of `data` that is in `transforms`; errors go to `problems`.
void resolve_transforms(ConfigNode& data, const TransformRegistry& transforms, ConfigProblems& problems);

}  // namespace npu_train::detail
