// msprobe's table of a comparison.
#include <algorithm>
#include <cmath>

#include "align/report_rows.hpp"
#include "npu_train/align/compare_report.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/report/csv.hpp"

namespace npu_train {
namespace {

using Cells = std::vector<std::string>;
using Kind = ItemComparison::Kind;
enum class Mode { Tensor, Statistics, Checksum };

Mode mode_of(const std::vector<detail::Row>& rows) {
  const auto any = [&](Kind kind) { return std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return r.item->kind == kind; }); };
  return any(Kind::Tensor) ? Mode::Tensor : any(Kind::Checksum) && !any(Kind::Statistics) ? Mode::Checksum : Mode::Statistics;
}

Cells columns_of(Mode mode) {
  Cells out = {"Step",
               "Rank",
               "NPU Name",
               "Bench Name",
               "NPU Dtype",
               "Bench Dtype",
               "NPU Tensor Shape",
               "Bench Tensor Shape",
               "NPU Requires_grad",
               "Bench Requires_grad"};
  const auto add = [&](const Cells& more) { out.insert(out.end(), more.begin(), more.end()); };
  if (mode == Mode::Tensor)
    add({"Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio"});
  if (mode == Mode::Statistics)
    add({"Max diff", "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"});
  if (mode == Mode::Checksum) add({"NPU MD5", "BENCH MD5"});
  if (mode != Mode::Checksum) add({"NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm"});
  add({"Requires_grad Consistent"});
  add(mode == Mode::Tensor       ? Cells{"Accuracy Reached or Not", "Err_message"}
      : mode == Mode::Statistics ? Cells{"Result", "Err_message"}
                                 : Cells{"Result"});
  add({"Mean Abs Err", "RMSE", "Max ULP", "Norm Ratio", "Error", "Amplification", "Verdict", "Message"});
  return out;
}

std::string or_na(const std::optional<double>& value) { return value ? shortest(*value) : "N/A"; }
std::string yes(bool value) { return value ? "True" : "False"; }

std::string relative_cell(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return "N/A";
  if (*b == 0) return *a == 0 ? "0.0%" : "N/A";
  return shortest(std::abs((*a - *b) / *b) * 100) + "%";
}

std::optional<double> apart(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::optional(*a - *b) : std::nullopt;
}

// msprobe's rule for values.
std::string accuracy_of(const ItemComparison& item) {
  if (item.kind == Kind::Unmatched) return "Unmatched";
  if (item.kind != Kind::Tensor) return "None";
  const auto& m = item.metrics;
  if (m.nonfinite_mismatch > 0) return "N/A";
  return (m.cosine < 0.99 && m.max_abs > 0.001) || m.cosine < 0.9 || m.max_abs > 1 ? "No" : "Yes";
}

// msprobe's rule for statistics.
std::string result_of(const ItemComparison& item) {
  if (item.kind == Kind::OneSided || item.kind == Kind::Unmatched) return "N/A";
  const auto &a = item.item_a, &b = item.item_b;
  const auto far = [](const std::optional<double>& x, const std::optional<double>& y) {
    return x && y && *y != 0 && std::abs((*x - *y) / *y) > 0.5;
  };
  return far(a.max, b.max) || far(a.min, b.min) || far(a.mean, b.mean) || far(a.norm, b.norm) ? "Warning" : "";
}

Cells row_cells(const detail::Row& row, Mode mode) {
  const auto& item = *row.item;
  const auto &a = item.item_a, &b = item.item_b;
  const bool has_a = !item.a.empty(), has_b = !item.b.empty();
  const auto side = [](bool there, const std::string& text) { return there ? text : std::string("N/A"); };
  Cells out = {std::to_string(row.step->step),
               row.step->rank,
               side(has_a, item.a),
               side(has_b, item.b),
               side(has_a, a.dtype),
               side(has_b, b.dtype),
               side(has_a, detail::shape_of(a)),
               side(has_b, detail::shape_of(b)),
               side(has_a, yes(a.requires_grad)),
               side(has_b, yes(b.requires_grad))};
  const auto& m = item.metrics;
  const bool values = item.kind == Kind::Tensor;
  const auto metric = [&](double v) { return values ? shortest(v) : item.kind == Kind::Unmatched ? "unmatched" : "N/A"; };
  if (mode == Mode::Tensor)
    for (const double v : {m.cosine, m.euclidean, m.max_abs, m.max_relative, m.one_thousandth, m.five_thousandth}) out.push_back(metric(v));
  if (mode == Mode::Statistics) {
    for (const auto& d : {apart(a.max, b.max), apart(a.min, b.min), apart(a.mean, b.mean), apart(a.norm, b.norm)}) out.push_back(or_na(d));
    out.insert(out.end(),
               {relative_cell(a.max, b.max), relative_cell(a.min, b.min), relative_cell(a.mean, b.mean), relative_cell(a.norm, b.norm)});
  }
  if (mode == Mode::Checksum) out.insert(out.end(), {side(has_a, a.crc), side(has_b, b.crc)});
  if (mode != Mode::Checksum) {
    for (const auto* i : {&a, &b})
      for (const auto* v : {&i->max, &i->min, &i->mean, &i->norm}) out.push_back(or_na(*v));
  }
  out.push_back(yes(a.requires_grad == b.requires_grad));
  const auto result = result_of(item);
  if (mode == Mode::Tensor)
    out.insert(out.end(), {accuracy_of(item), item.kind == Kind::Tensor && item.metrics.nonfinite_mismatch > 0
                                                  ? "The position of inf or nan in NPU and Bench Tensor do not match."
                                                  : ""});
  if (mode == Mode::Statistics) out.insert(out.end(), {result, result == "Warning" ? "Need double check api accuracy." : ""});
  if (mode == Mode::Checksum) out.push_back(item.kind == Kind::Checksum ? item.failed ? "Different" : "Pass" : "N/A");
  for (const double v : {m.mean_abs, m.rmse, m.max_ulp, m.norm_ratio}) out.push_back(values ? shortest(v) : "N/A");
  out.insert(out.end(), {shortest(item.error), shortest(row.call->amplification), detail::verdict_of(item), item.message});
  return out;
}

}  // namespace

std::string to_csv(const DumpComparison& comparison) {
  const auto rows = detail::rows_of(comparison);
  const auto mode = mode_of(rows);
  std::string out = csv_row(columns_of(mode));
  for (const auto& row : rows)
    if (row.item->item_a.is_tensor() || row.item->item_b.is_tensor() || row.item->kind == Kind::OneSided)
      out += csv_row(row_cells(row, mode));
  return out;
}

}  // namespace npu_train
