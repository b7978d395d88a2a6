/// Renumbers the classes of data to match another list of classes: that of the model that uses the data.
#pragma once

#include <string>
#include <vector>

#include "npu_train/data/datasets.hpp"

namespace npu_train {

/// Describes how two lists of class names differ, for a message: "new: z; missing: b". Empty if both have the same names, or if one list is
/// empty (its names are unknown).
std::string difference_of_classes(const std::vector<std::string>& here, const std::vector<std::string>& there);

/// Returns the pair with `classes` as its classes and its labels renumbered by name. Returns it unchanged if its names are unknown or equal
/// to `classes`. Error(Data) lists the names that are not in `classes`.
DatasetPair in_classes(DatasetPair pair, const std::vector<std::string>& classes);

}  // namespace npu_train
