// The part of a run's logs from before the position at which it resumes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/engine/logger.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

/// Returns the rows of metrics.csv that were written before the state of `loop`. Adds those columns of the file to `columns` that are not
/// in it. A damaged file is renamed, with a warning; its valid rows are kept.
std::string earlier_rows(const TrainLoop& loop, const std::filesystem::path& path, std::vector<std::string>& columns);

/// Parses `rows`, the result of earlier_rows(), and returns those from `step` on.
std::vector<LoggedRow> rows_from(int64_t step, const std::string& rows, const std::vector<std::string>& columns);

/// Returns the epochs of history.json that `loop` has finished. A damaged file is renamed, with a warning.
Json earlier_epochs(const TrainLoop& loop, const std::filesystem::path& path);

}  // namespace npu_train::detail
