/// A source scan as text for a terminal, as JSON, as CSV and as a page.
#pragma once

#include <cstddef>
#include <string>

#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train {

/// Returns one sentence: verdict, places, hours.
std::string headline(const SourceScan& scan);

/// Reports the verdict, libraries, actions by rule, and the places, worst first. JSON: {"source", "verdict", "summary", "hours",
/// "hours_mechanical", "places", "done_by", "files", "lines", "skipped", "libraries", "rules", "findings", "notes"}.
Report report_of(const SourceScan& scan);

/// Writes one row per finding: file, line, column, severity, rule, text, replacement, mechanical, done_by, hours, advice.
std::string to_csv(const SourceScan& scan);

/// Returns a table of the operators that an NPU does not support as they are (rules unsupported-api and fallback-api): operator, support,
/// count (places), where (the first few, as file:line), action, done_by, hours. For unsupported_operators.csv.
std::string unsupported_csv(const SourceScan& scan);

}  // namespace npu_train
