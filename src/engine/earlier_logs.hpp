// What the logs of a run hold from before a resume, up to the place where it goes on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

/// The rows of metrics.csv, under the header `columns`, that were written before the state of `loop`. A file that is damaged, or has other
/// columns, is set aside with a warning; its good rows stay.
std::string earlier_rows(const TrainLoop& loop, const std::filesystem::path& path, const std::vector<std::string>& columns);

/// The epochs of history.json that `loop` has finished. A file that is damaged is set aside with a warning.
Json earlier_epochs(const TrainLoop& loop, const std::filesystem::path& path);

}  // namespace npu_train::detail
