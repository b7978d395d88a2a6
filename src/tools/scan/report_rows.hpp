// What the forms of a report share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train::detail::scan {

/// "1 place", "2 places".
/// What it means that the project serves NPUs already.
std::string serves_npu_text(const SourceScan& scan);

std::string counted(int64_t count, const std::string& what);

/// By severity, then by file and line.
std::vector<const SourceFinding*> worst_first(const SourceScan& scan);

}  // namespace npu_train::detail::scan
