// What msprobe 26.2 says of the rows of a comparison in its columns Result and Err_message.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/align/report_rows.hpp"

namespace npu_train::detail {

// Of a table: what was compared decides the columns.
enum class CsvMode { Tensor, Statistics, Checksum };

struct CsvResult {
  std::string level = "pass";           // pass | warning | error; N/A of what is on one side only
  std::vector<std::string> messages{};  // why, each with its level in front
};

// Of the rows of one call: some rules weigh its outputs against its inputs.
std::vector<CsvResult> results_of(const std::vector<Row>& rows, CsvMode mode);

// Statistics as msprobe shows them: those of a plain number are the number.
enum class Statistic { Max, Min, Mean, Norm };
std::optional<double> statistic_of(const DumpItem& item, Statistic which);
// |a - b| / |b|; nothing where one is missing or B's is 0 and A's is not.
std::optional<double> relative_of(const ItemComparison& item, Statistic which);

}  // namespace npu_train::detail
