/// The differences of two configurations by meaning, not by notation.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"

namespace npu_train {

/// Text in place of a missing value.
inline constexpr const char* kNotGiven = "(not given)";

/// One setting that differs.
struct ConfigDifference {
  std::string path;     ///< dotted: "optimizer.lr", "data.train_transforms.0.size"
  std::string a, b;     ///< values as YAML in one line, or kNotGiven
  bool numeric = true;  ///< whether it may change the results of a run, see changes_numbers()
};

/// Returns false for settings that affect only output, storage, display, data loading speed or the end of a run: output, checkpoint, dump,
/// early_stopping, numbers of workers and similar keys. All others may change the results of a run, including paths of data and weights.
bool changes_numbers(const std::string& path);

/// Returns all differences in the order of A; keys that only B has follow the other keys of their section.
///
/// Numbers are compared by value ("0.1" equals "1e-1", and 1 equals 1.0), integers exactly. "true" equals "True", and quotes are ignored.
/// Lists are equal if their items are equal. Different lists of equal length that contain sections, such as transforms, are compared item
/// by item, and other lists as one value. A part that is given only by its name equals the part without options ("sgd" and {name: sgd}).
/// null differs from a missing key. Both sides should be complete (see comparable_config() in engine): a default that one side omits counts
/// as not given.
std::vector<ConfigDifference> compare_configs(const ConfigNode& a, const ConfigNode& b);

/// Returns the differences between two results of environment(), by name. Each difference may change the results of a run.
std::vector<ConfigDifference> compare_environments(const std::map<std::string, std::string>& a,
                                                   const std::map<std::string, std::string>& b);

}  // namespace npu_train
