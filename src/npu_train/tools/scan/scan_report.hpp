/// A source scan as text for a terminal, as JSON, as CSV and as a page.
#pragma once

#include <cstddef>
#include <string>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train {

/// Returns one sentence: verdict, places, hours.
std::string headline(const SourceScan& scan);

/// Prints the verdict, libraries, actions by rule, and the places, worst first. At most `rows` places are shown, 0: all. `width` as in
/// TextTable::str.
std::string to_text(const SourceScan& scan, size_t rows = 50, size_t width = 0);

/// {"source", "verdict", "hours", "hours_mechanical", "places", "files", "lines", "skipped", "libraries", "rules", "findings", "notes"}.
Json to_json(const SourceScan& scan);

/// Writes one row per finding: file, line, column, severity, rule, text, replacement, mechanical, hours, advice.
std::string to_csv(const SourceScan& scan);

std::string to_html(const SourceScan& scan);

}  // namespace npu_train
