// Rows and texts that are shared by text tables, CSV and pages.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train::detail {

// Returns "1 step" or "1,234 steps".
std::string counted(int64_t n, const std::string& one, const std::string& many = "");

// A pair with its call and step.
struct Row {
  const StepComparison* step;
  const CallComparison* call;
  const ItemComparison* item;
};

// Returns compared and one-sided items in call order.
std::vector<Row> rows_of(const DumpComparison& comparison);
// Sorts the rows, the worst first: failures, then items that are rounding, not judged, one-sided or not compared, then the others; each
// group by error.
std::vector<Row> worst_first(std::vector<Row> rows);

// Returns agrees | differs | rounding | not judged | unreadable | not compared | A only | B only; "A only, differs" for a failure on one
// side only.
std::string verdict_of(const ItemComparison& item);
std::string name_of(const ItemComparison& item);
std::string shape_of(const DumpItem& item);
// Returns "float32" for "torch.float32".
std::string short_dtype(const DumpItem& item);
// Returns the CRC-32 of both sides in 8 hexadecimal digits, computed from the values or read from the dump; "" if unknown.
std::pair<std::string, std::string> crc_of(const ItemComparison& item);
std::string kind_name(ItemComparison::Kind kind);
std::string cause_name(Divergence::Cause cause);
// Returns "The runs agree within tolerance. 1,234 values of 2 steps were compared."
std::string headline(const DumpComparison& comparison);
std::vector<std::string> notes_of(const DumpComparison& comparison);

// Adds the plots of a page, and its table of all values.
void add_plots(Report& out, const DumpComparison& comparison);
ReportTable page_table(const DumpComparison& comparison);

}  // namespace npu_train::detail
