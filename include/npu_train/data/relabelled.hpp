/// Data whose classes have the numbers of another list of classes: those of the model that the data are for.
#pragma once

#include <string>
#include <vector>

#include "npu_train/data/datasets.hpp"

namespace npu_train {

/// How the names of two lists of classes differ, for a message: "new: z; missing: b". Empty if both lists have the same names, or if one
/// is empty: its names are not known.
std::string difference_of_classes(const std::vector<std::string>& here, const std::vector<std::string>& there);

/// The pair with the labels that its classes have in `classes`, by name, and with these as its classes. The pair itself if its names are
/// not known or are these. Error(Data) lists the names that are not in `classes`.
DatasetPair in_classes(DatasetPair pair, const std::vector<std::string>& classes);

}  // namespace npu_train
