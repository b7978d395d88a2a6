// The table of a comparison in msprobe's format.
#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/tools/align/compare.hpp"
#include "tools/align/compare_csv_rules.hpp"

namespace npu_train {
namespace {

using Cells = std::vector<std::string>;
using Kind = ItemComparison::Kind;
using detail::CsvMode;
using detail::Statistic;

constexpr Statistic kStatistics[] = {Statistic::Max, Statistic::Min, Statistic::Mean, Statistic::Norm};
const std::string kNone = "N/A";

CsvMode mode_of(const std::vector<detail::Row>& rows) {
  const auto any = [&](Kind kind) { return std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return r.item->kind == kind; }); };
  return any(Kind::Tensor) ? CsvMode::Tensor : any(Kind::Checksum) && !any(Kind::Statistics) ? CsvMode::Checksum : CsvMode::Statistics;
}

// Returns the columns that msprobe 26.2 writes with its stack option, followed by our columns.
Cells columns_of(CsvMode mode) {
  Cells out = {"NPU Name",         "Bench Name",         "NPU Dtype",         "Bench Dtype",
               "NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad"};
  const auto add = [&](const Cells& more) { out.insert(out.end(), more.begin(), more.end()); };
  if (mode == CsvMode::Tensor)
    add({"Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"});
  if (mode == CsvMode::Statistics)
    add({"Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"});
  if (mode == CsvMode::Checksum)
    add({"NPU MD5", "BENCH MD5"});
  else
    add({"NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm"});
  add({"Requires_grad Consistent", "Result", "Err_message", "NPU_Stack_Info"});
  if (mode == CsvMode::Tensor) add({"Data_name"});
  add({"Step", "Rank", "Kind", "NPU CRC-32", "Bench CRC-32", "Identical", "Mean Abs Err", "RMSE", "Max ULP", "Norm Ratio", "Relative L2",
       "Error", "Amplification", "Verdict", "Message"});
  return out;
}

std::string or_none(const std::string& text) { return text.empty() ? kNone : text; }
std::string or_none(const std::optional<double>& value) { return value ? shortest(*value) : kNone; }
std::string yes(bool value) { return value ? "True" : "False"; }

// Returns a list of texts as JSON.
std::string json_cell(const Cells& list) { return detail::json_list(list).dump(0); }

std::string dtype_cell(const DumpItem& item) {
  return item.is_tensor() ? item.dtype : item.type.empty() ? kNone : "<class '" + item.type + "'>";
}

std::string statistic_cell(const DumpItem& item, Statistic which) {
  return item.is_tensor() ? or_none(detail::statistic_of(item, which)) : or_none(item.value);
}

Cells difference_cells(const ItemComparison& item) {
  Cells out;
  for (const auto which : kStatistics) {
    const auto a = detail::statistic_of(item.item_a, which), b = detail::statistic_of(item.item_b, which);
    out.push_back(!a || !b ? kNone : *a == *b ? "0" : shortest(*a - *b));
  }
  for (const auto which : kStatistics) {
    const auto relative = detail::relative_of(item, which);
    out.push_back(!relative ? kNone : *relative == 0 ? "0" : shortest(*relative * 100) + "%");
  }
  return out;
}

// Whether the argument is None on both sides.
bool is_none(const ItemComparison& item) { return item.kind == Kind::Value && item.item_a.value == "None" && item.item_b.value == "None"; }

Cells row_cells(const detail::Row& row, const detail::CsvResult& result, CsvMode mode) {
  const auto& item = *row.item;
  const auto &a = item.item_a, &b = item.item_b;
  const auto& m = item.metrics;
  const auto [crc_a, crc_b] = detail::crc_of(item);
  const bool values = item.kind == Kind::Tensor;
  const auto metric = [&](double v) { return values ? shortest(v) : item.kind == Kind::Unmatched ? "shape unmatched" : kNone; };
  const auto grad = [](const DumpItem& i) { return i.is_tensor() ? yes(i.requires_grad) : kNone; };
  const auto shape = [](const DumpItem& i) { return i.is_tensor() ? detail::shape_of(i) : i.value.empty() ? kNone : "[]"; };
  Cells out = {or_none(item.a), or_none(item.b), dtype_cell(a), dtype_cell(b), shape(a), shape(b), grad(a), grad(b)};
  const auto add = [&](const Cells& more) { out.insert(out.end(), more.begin(), more.end()); };
  if (mode == CsvMode::Tensor)
    for (const double v : {m.cosine, m.euclidean, m.max_abs, m.max_relative, m.one_thousandth, m.five_thousandth}) out.push_back(metric(v));
  if (mode == CsvMode::Statistics) add(difference_cells(item));
  if (mode == CsvMode::Checksum) {
    add({or_none(a.crc), or_none(b.crc)});
  } else {
    for (const auto* i : {&a, &b})
      for (const auto which : kStatistics) out.push_back(statistic_cell(*i, which));
  }
  add({yes(a.requires_grad == b.requires_grad), result.level, json_cell(result.messages), kNone});
  if (mode == CsvMode::Tensor)
    out.push_back(json_cell({a.data_name.empty() ? "-1" : a.data_name, b.data_name.empty() ? "-1" : b.data_name}));
  add({std::to_string(row.step->step), row.step->rank, detail::kind_name(item.kind), or_none(crc_a), or_none(crc_b),
       values ? yes(m.identical) : kNone});
  for (const double v : {m.mean_abs, m.rmse, m.max_ulp, m.norm_ratio, m.relative_norm}) out.push_back(values ? shortest(v) : kNone);
  add({shortest(item.error), shortest(row.call->amplification), detail::verdict_of(item), item.message});
  return out;
}

}  // namespace

std::string to_csv(const DumpComparison& comparison) {
  const auto all = detail::rows_of(comparison);
  const auto mode = mode_of(all);
  std::string out = csv_row(columns_of(mode));
  for (size_t begin = 0; begin < all.size();) {
    std::vector<detail::Row> rows;  // rows of one call
    const auto* call = all[begin].call;
    for (; begin < all.size() && all[begin].call == call; ++begin)
      if (!is_none(*all[begin].item)) rows.push_back(all[begin]);
    const auto results = detail::results_of(rows, mode);
    for (size_t i = 0; i < rows.size(); ++i) out += csv_row(row_cells(rows[i], results[i], mode));
  }
  return out;
}

}  // namespace npu_train
