/// What a comparison of dumps looks like: for the terminal, for programs, for msprobe's users, and as a page.
#pragma once

#include <string>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/align/compare.hpp"

namespace npu_train {

/// The verdict, where the runs part and why, then the worst rows first, at most `rows` (0: all). `width`: of the terminal, 0 unlimited.
std::string to_text(const DumpComparison& comparison, size_t rows = 20, size_t width = 0);

/// Everything, one document.
Json to_json(const DumpComparison& comparison);

/// One row for each pair in call order, with the columns of msprobe 26.2 in its order (MindStudio Probe, msprobe/core/common/const.py,
/// CompareConst): those of its mode "tensor" where values were compared, of "statistics" or "md5" else. A is msprobe's "NPU" side, B its
/// "Bench"; what it has and we have not (NPU_Stack_Info) is N/A. Behind them columns of ours, from Step to Message.
/// Result (pass, warning, error; N/A of what is on one side only) follows msprobe's rules, Verdict ours.
std::string to_csv(const DumpComparison& comparison);

/// A self-contained page: error by layer in call order, histogram of the errors, a table to sort.
std::string to_html(const DumpComparison& comparison);

}  // namespace npu_train
