#include "npu_train/tools/align/monitor_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/median.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/monitor_log.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train {
namespace {

using Series = MonitorLog::Series;

std::string text_of(const Series& s) { return s.what + " of " + s.name; }

bool same_digits(const MonitorRow& a, const MonitorRow& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.numel == b.numel && same(a.norm, b.norm) && same(a.mean, b.mean) && same(a.std, b.std) && same(a.min, b.min) &&
         same(a.max, b.max) && same(a.zeros, b.zeros) && a.nans == b.nans && a.infs == b.infs;
}

// Returns the norm that replaces smaller norms in denominators (see MonitorDifference), by kind of tensor and window.
std::map<std::pair<std::string, int64_t>, double> noise_of(const MonitorLog& log) {
  std::map<std::pair<std::string, int64_t>, std::vector<double>> norms;
  for (const auto& s : log.series)
    for (const auto& row : s.rows)
      if (std::isfinite(row.norm)) norms[{s.what, row.attempt}].push_back(row.norm);
  std::map<std::pair<std::string, int64_t>, double> out;
  for (auto& [key, values] : norms) out[key] = 0.01 * upper_median(std::move(values));
  return out;
}

double relative_difference(const MonitorRow& a, const MonitorRow& b, double noise) {
  if (same_digits(a, b)) return 0;  // here NaN equals NaN: the statistics of a tensor without elements are NaN
  if (a.is_finite() != b.is_finite()) return std::numeric_limits<double>::infinity();
  if (!a.is_finite() || a.norm == b.norm) return 0;
  return std::abs(a.norm - b.norm) / std::max(std::abs(b.norm), noise);
}

// Keeps the difference with the earlier window; of two in one window, the one that was passed first, since the series are compared in the
// order of the computation.
void keep_first(std::optional<MonitorDifference>& first, const MonitorDifference& other) {
  if (!first || other.attempt < first->attempt) first = other;
}

}  // namespace

MonitorComparison compare_monitors(const std::filesystem::path& a, const std::filesystem::path& b, const HistoryOptions& options) {
  const auto log_a = read_monitor_log(a), log_b = read_monitor_log(b);
  MonitorComparison out{.a = a.string(), .b = b.string()};
  const auto noise = noise_of(log_b);
  std::map<std::pair<std::string, std::string>, const Series*> of_b;
  for (const auto& s : log_b.series) of_b[{s.what, s.name}] = &s;
  int64_t rows = 0;
  bool one_sided = false;
  double sum = 0;
  for (const auto& s : log_a.series) {
    const auto found = of_b.find({s.what, s.name});
    if (found == of_b.end()) {
      out.only_a.push_back(text_of(s));
      continue;
    }
    MonitorDifference worst{.what = s.what, .name = s.name, .relative = -1};
    int64_t common = 0;
    double own = 0;
    const auto& other = found->second->rows;
    for (size_t i = 0, j = 0; i < s.rows.size() && j < other.size();) {
      const auto &x = s.rows[i], &y = other[j];
      const int64_t at_a = x.attempt, at_b = y.attempt + options.shift;
      i += at_a <= at_b, j += at_b <= at_a;
      if (at_a != at_b) continue;
      const auto level = noise.find({s.what, y.attempt});
      MonitorDifference d{.what = s.what, .name = s.name, .attempt = at_a, .step = x.step, .norm_a = x.norm, .norm_b = y.norm};
      d.relative = relative_difference(x, y, level == noise.end() ? 0 : level->second);
      if (!same_digits(x, y)) keep_first(out.first_unequal, d);
      if (d.relative > options.step_rtol) keep_first(out.first_beyond, d);
      if (d.relative > worst.relative) worst = d;
      one_sided |= std::isinf(d.relative);
      ++common;
      own += std::isinf(d.relative) ? 0 : d.relative;
    }
    of_b.erase(found);
    if (common == 0) continue;
    worst.mean_relative = own / static_cast<double>(common);
    rows += common;
    sum += own;
    out.tensors.push_back(std::move(worst));
  }
  for (const auto& s : log_b.series)
    if (of_b.count({s.what, s.name}) > 0) out.only_b.push_back(text_of(s));
  check(rows > 0, ErrorKind::Data, "compare", out.a, " and ", out.b, ": no window and tensor is in both monitors; A has ",
        log_a.series.size(), " tensors in ", log_a.attempts.size(), " windows, B ", log_b.series.size(), " in ", log_b.attempts.size(),
        "; hint: record both with the same monitor.every");
  auto shifted = log_b.attempts;
  for (auto& attempt : shifted) attempt += options.shift;
  std::vector<int64_t> both;
  std::set_intersection(log_a.attempts.begin(), log_a.attempts.end(), shifted.begin(), shifted.end(), std::back_inserter(both));
  out.windows = static_cast<int64_t>(both.size());
  out.windows_a = static_cast<int64_t>(log_a.attempts.size()) - out.windows;
  out.windows_b = static_cast<int64_t>(shifted.size()) - out.windows;
  out.mean_relative = sum / static_cast<double>(rows);
  out.agrees = out.mean_relative <= options.mean_rtol && !one_sided;
  return out;
}

std::vector<std::string> sentences_of(const MonitorComparison& c) {
  const auto place = [](const MonitorDifference& d) {
    return str_cat(d.what, " of ", d.name, " at step ", d.step, " (window ", d.attempt, "), norms ", short_number(d.norm_a), " and ",
                   short_number(d.norm_b));
  };
  const auto common =
      str_cat(detail::counted(static_cast<int64_t>(c.tensors.size()), "tensor"), " in ", detail::counted(c.windows, "common window"));
  std::vector<std::string> out;
  if (!c.first_unequal) {
    out.push_back("the monitors are equal in all digits: " + common);
  } else {
    out.push_back("the monitored norms of " + common + " differ by " + percentage(c.mean_relative) + " on average");
    if (c.first_beyond) out.push_back("the first that differs notably: " + place(*c.first_beyond));
    out.push_back("the first that differs in any digit: " + place(*c.first_unequal));
  }
  if (c.windows_a + c.windows_b > 0) out.push_back(str_cat("windows of one monitor only: ", c.windows_a, " of A, ", c.windows_b, " of B"));
  if (!c.only_a.empty()) out.push_back("only A monitors " + detail::first_few(c.only_a, 5));
  if (!c.only_b.empty()) out.push_back("only B monitors " + detail::first_few(c.only_b, 5));
  return out;
}

}  // namespace npu_train
