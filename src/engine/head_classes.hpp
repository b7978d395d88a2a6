// Matches the classes of a weights file and a model by name.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/weights.hpp"

namespace npu_train::detail {

// Reorders the outputs of a file's head to match `classes`, the model's classes, if the classes of both are known and differ. Classes that
// the file lacks get the model's current values. Returns a line for each reordered tensor, for a report. Error(Checkpoint) without a
// Model::head.
std::vector<std::string> move_head_to_classes(WeightsFile& file, const Model& model, const std::vector<std::string>& classes);

}  // namespace npu_train::detail
