/// Reports of a comparison of dumps: for terminals, programs and users of msprobe, and as a page.
#pragma once

#include <string>

#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// Reports the verdict, the first difference and its cause, and the values: the worst ones as text, all of them on the page and in the JSON
/// document. The report refers to the comparison, which must outlive it.
Report report_of(const DumpComparison& comparison);

/// Writes one row for each pair in call order, with the columns of msprobe 26.2 in its order (MindStudio Probe,
/// msprobe/core/common/const.py, CompareConst): those of its mode "tensor" if values were compared, otherwise of "statistics" or "md5". A
/// is msprobe's "NPU" side, B its "Bench"; columns that only msprobe has (NPU_Stack_Info) are N/A. Our own columns follow, from Step to
/// Message. Result (pass, warning, error; N/A for entries on one side only) follows msprobe's rules, Verdict ours.
std::string to_csv(const DumpComparison& comparison);

}  // namespace npu_train
