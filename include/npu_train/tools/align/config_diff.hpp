/// The differences of two configurations, by meaning and not by notation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"

namespace npu_train {

/// The text for a value on the side that has none.
inline constexpr const char* kNotGiven = "(not given)";

/// One setting that is not the same on both sides.
struct ConfigDifference {
  std::string path;     ///< dotted: "optimizer.lr", "data.train_transforms.0.size"
  std::string a, b;     ///< as YAML in one line, or kNotGiven
  bool numeric = true;  ///< may change the numbers of a run, see changes_numbers
};

/// False for settings that affect only output, storage and display, the speed of the data, or the end of a run: output, checkpoint, dump,
/// early_stopping, numbers of workers and similar keys. All others may change the results of a run, including paths of data and weights.
bool changes_numbers(const std::string& path);

/// All differences, in the order of A; keys that only B has follow the rest of their section.
///
/// Numbers are equal by value ("0.1" and "1e-1", 1 and 1.0), integers to the last digit; "true" and "True" are one; quotes do not count.
/// Lists are equal when their items are; lists of as many sections (transforms) are compared item by item, others as one value. A part
/// given by its name alone is the part without options ("sgd" and {name: sgd}). null differs from a missing key. Both should be complete
/// (see engine's comparable_config): a default that one side omits counts as not given.
std::vector<ConfigDifference> compare_configs(const ConfigNode& a, const ConfigNode& b);

/// Differences between two environment()s, by name; all of them may change numbers.
std::vector<ConfigDifference> compare_environments(const std::map<std::string, std::string>& a,
                                                   const std::map<std::string, std::string>& b);

}  // namespace npu_train
