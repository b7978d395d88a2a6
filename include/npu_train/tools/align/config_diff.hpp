/// Where two configurations differ, by what is meant and not by how it is written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"

namespace npu_train {

/// What stands for a value on the side that has none.
inline constexpr const char* kNotGiven = "(not given)";

/// One setting that is not the same on both sides.
struct ConfigDifference {
  std::string path;     ///< dotted: "optimizer.lr", "data.train_transforms.0.size"
  std::string a, b;     ///< as YAML in one line, or kNotGiven
  bool numeric = true;  ///< may change the numbers of a run, see changes_numbers
};

/// False for settings that decide only what is written, kept or shown, how fast data comes, or when a run ends: output, checkpoint, dump,
/// early_stopping, numbers of workers and the like. Everything else may change what a run computes, paths of data and weights too.
bool changes_numbers(const std::string& path);

/// All differences, in the order of A; what only B has stands behind the rest of its section.
///
/// Numbers are equal by value ("0.1" and "1e-1", 1 and 1.0), integers to the last digit; "true" and "True" are one; quotes do not count.
/// Lists are equal when their items are; lists of as many sections (transforms) are compared item by item, others as a whole. A part given
/// by its name alone is the part without options ("sgd" and {name: sgd}). null is not the same as nothing.
/// Both should be complete (see engine's comparable_config): a default that one side leaves out counts as not given.
std::vector<ConfigDifference> compare_configs(const ConfigNode& a, const ConfigNode& b);

/// Differences between two environment()s, by name; all of them may change numbers.
std::vector<ConfigDifference> compare_environments(const std::map<std::string, std::string>& a,
                                                   const std::map<std::string, std::string>& b);

}  // namespace npu_train
