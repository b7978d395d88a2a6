// The columns `Result` and `Err_message` of a comparison, by the rules of msprobe 26.2.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/align/report_rows.hpp"

namespace npu_train::detail {

// The kind of the compared data, which determines the columns of a table.
enum class CsvMode { Tensor, Statistics, Checksum };

struct CsvResult {
  std::string level = "pass";           // pass | warning | error; N/A for rows that only one side has
  std::vector<std::string> messages{};  // the reasons, each preceded by its level
};

// Returns the results for the rows of one call: some rules compare its outputs with its inputs.
std::vector<CsvResult> results_of(const std::vector<Row>& rows, CsvMode mode);

// Statistics as msprobe shows them: for a plain number, each is the number itself.
enum class Statistic { Max, Min, Mean, Norm };
std::optional<double> statistic_of(const DumpItem& item, Statistic which);
// Returns |a - b| / |b| of a statistic; nullopt if it is missing on a side, or if only b is 0.
std::optional<double> relative_of(const ItemComparison& item, Statistic which);

}  // namespace npu_train::detail
