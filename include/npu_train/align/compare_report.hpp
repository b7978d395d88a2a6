/// What a comparison of dumps looks like: for the terminal, for programs, for msprobe's users, and as a page.
#pragma once

#include <string>

#include "npu_train/align/compare.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {

/// The verdict, where the runs part and why, then the worst rows first, at most `rows` (0: all). `width`: of the terminal, 0 unlimited.
std::string to_text(const DumpComparison& comparison, size_t rows = 20, size_t width = 0);

/// Everything, one document.
Json to_json(const DumpComparison& comparison);

/// One row for each pair in call order, with msprobe's columns: those of its mode "tensor" where values were compared, of "statistics" or
/// "md5" else. A is msprobe's "NPU" side, B its "Bench"; in front Step and Rank, behind them Error, Amplification and Verdict of ours.
/// "Accuracy Reached or Not" and "Result" follow msprobe's rules, Verdict ours.
std::string to_csv(const DumpComparison& comparison);

/// A self-contained page: error by layer in call order, histogram of the errors, a table to sort.
std::string to_html(const DumpComparison& comparison);

}  // namespace npu_train
