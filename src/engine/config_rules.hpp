// What no table holds: keys that must fit each other, and texts with a grammar of their own.
#pragma once

#include <functional>
#include <string>

#include "npu_train/engine/run_config.hpp"

namespace npu_train::detail {

/// The loader's options of data that are given in code.
struct PlainDataOptions : DataOptions {
  static const ConfigTable<PlainDataOptions>& config_table();
};

/// Where the value of a key is written ("trainer.on_oom").
using MarkOf = std::function<Mark(const std::string& path)>;

/// Adds to `problems` what is wrong across keys. Opens nothing and reads no device. `config` has passed its table; its parts are as
/// written.
void check_rules(const RunConfig& config, const Parts& parts, const MarkOf& mark_of, ConfigProblems& problems);

/// Whether `name` in `registry` is the library's own part, and not one that a program put in its place: of such a part it is known that it
/// can be made to see what it refuses or has.
template <class R>
bool is_own_part(const R& registry, const R& own, const std::string& name) {
  return own.contains(name) && registry.contains(name) && own.doc(name) == registry.doc(name);
}

/// The options of each transform of `data` filled in, where the library knows the transform; mistakes go to `problems`.
void resolve_transforms(ConfigNode& data, ConfigProblems& problems);

}  // namespace npu_train::detail
