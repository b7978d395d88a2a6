/// Reports of a comparison of dumps: for terminals, programs and users of msprobe, and as a page.
#pragma once

#include <string>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/align/compare.hpp"

namespace npu_train {

/// Prints the verdict, the first difference and its cause, and the worst `rows` rows (0: all), worst first. `width`: of the terminal; 0:
/// unlimited.
std::string to_text(const DumpComparison& comparison, size_t rows = 20, size_t width = 0);

/// Returns the complete comparison as one document.
Json to_json(const DumpComparison& comparison);

/// Writes one row for each pair in call order, with the columns of msprobe 26.2 in its order (MindStudio Probe,
/// msprobe/core/common/const.py, CompareConst): those of its mode "tensor" if values were compared, otherwise of "statistics" or "md5". A
/// is msprobe's "NPU" side, B its
/// "Bench"; columns that only msprobe has (NPU_Stack_Info) are N/A. Our own columns follow, from Step to Message.
/// Result (pass, warning, error; N/A for entries on one side only) follows msprobe's rules, Verdict ours.
std::string to_csv(const DumpComparison& comparison);

/// Writes a self-contained page: error by layer in call order, histogram of the errors, sortable table.
std::string to_html(const DumpComparison& comparison);

}  // namespace npu_train
