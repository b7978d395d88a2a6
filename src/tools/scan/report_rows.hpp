// Common parts of the reports of a scan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train::detail::scan {

/// Explains the consequence if the project already supports NPUs.
std::string serves_npu_text(const SourceScan& scan);

/// Returns "1 place" or "2 places".
std::string counted(int64_t count, const std::string& what);

/// Sorts by severity, then by file and line.
std::vector<const SourceFinding*> worst_first(const SourceScan& scan);

}  // namespace npu_train::detail::scan
