#include <algorithm>
#include <cmath>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/median.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/align/history_parts.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kLargestShift = int64_t{1} << 40;
constexpr double kFloorShare = 0.01;  // denominators of relative differences are at least this share of B's level

double floor_of(const History& b) {
  std::vector<double> sizes;
  for (const double loss : b.loss)
    if (std::isfinite(loss)) sizes.push_back(std::abs(loss));
  const double first = sizes.empty() ? 0 : sizes.front();
  return kFloorShare * std::max(first, upper_median(std::move(sizes)));
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

double relative_loss(double a, double b, double floor) {
  if (same_number(a, b)) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return kInfinite;
  return std::abs(a - b) / std::max({std::abs(b), floor, std::numeric_limits<double>::min()});
}

// Calls both(i, j) for steps with step_a[i] == step_b[j] + shift, and only_a(i) or only_b(j) for the others.
template <class Both, class OnlyA, class OnlyB>
void align_steps(const History& a, const History& b, int64_t shift, Both&& both, OnlyA&& only_a, OnlyB&& only_b) {
  size_t i = 0, j = 0;
  while (i < a.step.size() || j < b.step.size()) {
    const bool has_a = i < a.step.size(), has_b = j < b.step.size();
    if (has_a && has_b && a.step[i] == b.step[j] + shift)
      both(i++, j++);
    else if (!has_b || (has_a && a.step[i] < b.step[j] + shift))
      only_a(i++);
    else
      only_b(j++);
  }
}

bool same_lr(double a, double b, double rtol) {
  if (std::isnan(a) || std::isnan(b) || a == b) return true;
  return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= rtol * std::max(std::abs(a), std::abs(b));
}

struct Mean {
  double sum = 0;
  int64_t n = 0;
  void add(double value) {
    sum += value;
    ++n;
  }
  double value() const { return n > 0 ? sum / static_cast<double>(n) : std::numeric_limits<double>::quiet_NaN(); }
};

void measure(HistoryComparison& c, const HistoryOptions& options) {
  const size_t last_quarter = c.rows.size() - std::max<size_t>(1, c.rows.size() / 4);
  Mean all, last, last_a, last_b;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const auto& row = c.rows[i];
    if (!c.first_unequal && !same_number(row.loss_a, row.loss_b)) c.first_unequal = row.step;
    if (!c.first_beyond && row.relative > options.step_rtol) c.first_beyond = row.step;
    if (!c.first_lr && !same_lr(row.lr_a, row.lr_b, options.lr_rtol)) c.first_lr = row.step;
    c.lr_compared |= !std::isnan(row.lr_a) && !std::isnan(row.lr_b);
    if (row.relative > c.max_relative) {
      c.max_relative = row.relative;
      c.max_step = row.step;
    }
    if (std::isinf(row.relative)) {
      if (!c.first_not_finite) c.first_not_finite = row.step;
      continue;
    }
    if (!std::isfinite(row.loss_a)) {  // neither loss is finite
      if (!c.first_unproven) c.first_unproven = row.step;
      continue;
    }
    all.add(row.relative);
    if (i < last_quarter) continue;
    last.add(row.relative);
    last_a.add(row.loss_a);
    last_b.add(row.loss_b);
  }
  c.mean_relative = all.value();
  c.last_quarter_relative = last.value();
  c.last_mean_a = last_a.value();
  c.last_mean_b = last_b.value();
  size_t beyond = 0;
  for (size_t n = 1; n <= c.rows.size(); ++n) {
    const auto& row = c.rows[c.rows.size() - n];
    const bool here = row.relative > options.step_rtol;
    beyond += here;
    if (n == 1 && !here) break;
    if (here && beyond * 10 >= n * 9) c.diverged = row.step;
  }
  c.complete = c.only_a.empty() && c.only_b.empty();
  c.agrees = !c.first_not_finite && !c.first_unproven && !c.first_lr && c.mean_relative <= options.mean_rtol &&
             c.last_quarter_relative <= options.mean_rtol;
}

void note_one_sided(HistoryComparison& c, int64_t shift) {
  const auto tell = [&](const std::vector<int64_t>& steps, int64_t last, const char* side, const char* other) {
    if (steps.empty()) return;
    const auto behind = std::count_if(steps.begin(), steps.end(), [&](int64_t step) { return step > last; });
    const auto within = static_cast<int64_t>(steps.size()) - behind;
    if (within > 0) c.notes.push_back(detail::counted(within, "step") + (within == 1 ? " is" : " are") + " logged by " + side + " only");
    if (behind > 0)
      c.notes.push_back(std::string(side) + " continues to step " + std::to_string(steps.back()) + ", " + other + " ends at step " +
                        std::to_string(last));
  };
  const auto last = c.rows.back().step;
  tell(c.only_a, last, "A", "B");
  tell(c.only_b, last - shift, "B", "A");  // these steps are numbered as in B
}

std::string range_of(const History& h) {
  return std::to_string(h.step.front()) + " to " + std::to_string(h.step.back()) + " (" + with_commas(static_cast<int64_t>(h.step.size())) +
         ")";
}

}  // namespace

std::optional<double> detail::mean_relative_at(const History& a, const History& b, int64_t shift, size_t least) {
  Mean mean;
  size_t common = 0;
  const double floor = floor_of(b);
  align_steps(
      a, b, shift,
      [&](size_t i, size_t j) {
        ++common;
        const double relative = relative_loss(a.loss[i], b.loss[j], floor);
        if (std::isfinite(relative) && std::isfinite(a.loss[i])) mean.add(relative);
      },
      [](size_t) {}, [](size_t) {});
  return common >= least && mean.n > 0 ? std::optional(mean.value()) : std::nullopt;
}

HistoryComparison compare_histories(const History& a, const History& b, const HistoryOptions& options) {
  check(options.mean_rtol > 0 && options.step_rtol > 0 && options.lr_rtol > 0, ErrorKind::Usage, "history",
        "tolerances must be positive; they are ", options.mean_rtol, ", ", options.step_rtol, " and ", options.lr_rtol);
  check(options.shift > -kLargestShift && options.shift < kLargestShift, ErrorKind::Usage, "history", "the shift is ", options.shift,
        " steps");
  check(!a.step.empty() && !b.step.empty(), ErrorKind::Usage, "history", "a history has no steps");
  HistoryComparison out;
  out.a = a.source;
  out.b = b.source;
  const double floor = floor_of(b);
  const auto lr_at = [](const History& h, size_t i) { return h.lr.empty() ? std::numeric_limits<double>::quiet_NaN() : h.lr[i]; };
  align_steps(
      a, b, options.shift,
      [&](size_t i, size_t j) {
        HistoryRow row{.step = a.step[i], .loss_a = a.loss[i], .loss_b = b.loss[j], .lr_a = lr_at(a, i), .lr_b = lr_at(b, j)};
        row.relative = relative_loss(row.loss_a, row.loss_b, floor);
        row.absolute = std::isinf(row.relative) || row.relative == 0 ? row.relative : std::abs(row.loss_a - row.loss_b);
        out.rows.push_back(row);
      },
      [&](size_t i) { out.only_a.push_back(a.step[i]); }, [&](size_t j) { out.only_b.push_back(b.step[j]); });
  check(!out.rows.empty(), ErrorKind::Data, "history", "the histories have no common step: A has ", range_of(a), ", B ", range_of(b),
        "; hint: name the step columns (--columns step=NAME, --columns-b), or shift B's steps (--shift)");
  for (const auto* side : {&a, &b})
    for (const auto& note : side->notes) out.notes.push_back((side == &a ? "A: " : "B: ") + note);
  measure(out, options);
  note_one_sided(out, options.shift);
  detail::explain_histories(out, a, b, options);
  return out;
}

}  // namespace npu_train
