// Derives likely causes from the shape of two curves.
#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/align/causes.hpp"
#include "tools/align/history_parts.hpp"
#include "tools/align/report_rows.hpp"

namespace npu_train::detail {
namespace {

constexpr double kRounding = 1e-4;      // largest relative error that rounding causes in an fp32 loss before the first update
constexpr double kLowPrecision = 1e-2;  // like kRounding, but in bf16, fp16 or TF32
constexpr size_t kLeastRows = 8;        // number of rows needed to judge the shape of a curve

std::string share_text(double relative) {
  if (std::isinf(relative)) return "without bound";
  return std::isnan(relative) ? "unknown" : percentage(relative);
}

std::string at_step(int64_t step) { return "step " + std::to_string(step); }

class HistoryExplainer {
 public:
  HistoryExplainer(HistoryComparison& c, const History& a, const History& b, const HistoryOptions& options)
      : c_(c), a_(a), b_(b), options_(options) {}

  void run() {
    unproven();
    overlap();
    summary();
    not_finite();
    learning_rates();
    skipped();
    if (!c_.first_unequal || finite_rows() == 0) return;
    if (renumbered() || constant_factor()) return;
    other_columns();
    if (differs_at_first()) return;
    if (!jump()) growth();
  }

 private:
  void see(const std::string& sentence) { c_.sentences.push_back(sentence); }

  size_t finite_rows() const {
    return static_cast<size_t>(std::count_if(c_.rows.begin(), c_.rows.end(), [](const auto& row) { return std::isfinite(row.relative); }));
  }

  // Reports losses that are non-finite on both sides. This does not count as agreement, since two runs may fail in different ways.
  void unproven() {
    if (!c_.first_unproven) return;
    int64_t n = 0, behind = 0;
    for (const auto& row : c_.rows) {
      n += row.relative == 0 && !std::isfinite(row.loss_a);
      behind += row.step >= *c_.first_unproven;
    }
    const auto at = at_step(*c_.first_unproven);
    see((n > 1 && n == behind ? "from " + at + " on"
         : n == 1             ? "at " + at
                              : "at " + counted(n, "step") + ", first at " + at) +
        " both losses are non-finite, which proves nothing");
    say(c_, "curve_not_finite");
  }

  void overlap() {
    const auto common = static_cast<int64_t>(c_.rows.size()), one_sided = static_cast<int64_t>(c_.only_a.size() + c_.only_b.size());
    if (!c_.complete)
      see(with_commas(common) + " of " + counted(common + one_sided, "step") + (common == 1 ? " is" : " are") +
          " common; all following statements are about " + (common == 1 ? "it" : "them") + " only");
  }

  void summary() {
    const auto n = counted(static_cast<int64_t>(c_.rows.size()), "common step");
    if (!c_.first_unequal)
      return see("the losses are equal in all digits at all " + n + (c_.first_unproven ? ", including NaN and infinities" : ""));
    see("over " + n + " the losses differ by " + share_text(c_.mean_relative) + " on average, by " + share_text(c_.last_quarter_relative) +
        " in the last quarter (allowed: " + share_text(options_.mean_rtol) + "); the largest difference is " + share_text(c_.max_relative) +
        " at " + at_step(c_.max_step));
    see("the first difference in any digit is at " + at_step(*c_.first_unequal) +
        (c_.first_beyond ? ", the first of more than " + share_text(options_.step_rtol) + " at " + at_step(*c_.first_beyond) : "") +
        (c_.diverged ? "; from " + at_step(*c_.diverged) + " on they remain different" : ""));
  }

  void not_finite() {
    if (!c_.first_not_finite) return;
    const auto row = std::find_if(c_.rows.begin(), c_.rows.end(), [&](const auto& r) { return r.step == *c_.first_not_finite; });
    const bool in_a = !std::isfinite(row->loss_a);
    const std::string side = in_a ? "A" : "B";
    see("at " + at_step(row->step) + " the loss of " + side + " is " + short_number(in_a ? row->loss_a : row->loss_b) + ", that of " +
        (in_a ? "B" : "A") + " is " + short_number(in_a ? row->loss_b : row->loss_a));
    say(c_, "curve_overflow", {side});
  }

  void learning_rates() {
    if (!c_.first_lr) return;
    const auto row = std::find_if(c_.rows.begin(), c_.rows.end(), [&](const auto& r) { return r.step == *c_.first_lr; });
    see("the learning rates differ from " + at_step(row->step) + " on: " + shortest(row->lr_a) + " and " + shortest(row->lr_b));
    say(c_, lr_is_shifted() ? "curve_lr_shifted" : "curve_lr");
  }

  // Whether the learning rates of B equal those of A when shifted by one row.
  bool lr_is_shifted() const {
    const auto& rows = c_.rows;
    for (const int shift : {1, -1}) {
      size_t same = 0, changes = 0;
      for (size_t i = 0; i + 1 < rows.size(); ++i) {
        const double a = shift > 0 ? rows[i + 1].lr_a : rows[i].lr_a, b = shift > 0 ? rows[i].lr_b : rows[i + 1].lr_b;
        same += std::abs(a - b) <= options_.lr_rtol * std::abs(b);
        changes += rows[i].lr_b != rows[i + 1].lr_b;
      }
      if (changes > 0 && rows.size() > kLeastRows && same * 10 >= (rows.size() - 1) * 9) return true;
    }
    return false;
  }

  void skipped() {
    if (a_.skipped == b_.skipped) return;
    see("steps were skipped: " + std::to_string(a_.skipped.size()) + " in A, " + std::to_string(b_.skipped.size()) + " in B");
    say(c_, "curve_skipped");
  }

  // Whether A and B start to count steps at different numbers. Only curves that change show this.
  bool renumbered() {
    if (c_.rows.size() < kLeastRows || !(c_.mean_relative > kRounding)) return false;
    for (const int64_t by : {int64_t{1}, int64_t{-1}}) {
      const auto moved = mean_relative_at(a_, b_, options_.shift + by, c_.rows.size() / 2);
      if (!moved || *moved > 0.1 * c_.mean_relative) continue;
      see("shifted by one step, the curves differ by " + share_text(*moved) + " only: step s of B is step s" + (by > 0 ? " + 1" : " - 1") +
          " of A");
      say(c_, "curve_renumbered", {std::to_string(options_.shift + by)});
      return true;
    }
    return false;
  }

  bool constant_factor() {
    std::vector<double> ratios;
    for (const auto& row : c_.rows)
      if (std::isfinite(row.loss_a) && std::isfinite(row.loss_b) && row.loss_b != 0) ratios.push_back(row.loss_a / row.loss_b);
    if (ratios.size() < kLeastRows) return false;
    auto sorted = ratios;
    std::sort(sorted.begin(), sorted.end());
    const double factor = sorted[sorted.size() / 2];
    const auto near =
        std::count_if(ratios.begin(), ratios.end(), [&](double r) { return std::abs(r - factor) <= 0.01 * std::abs(factor); });
    if (std::abs(factor - 1) < 0.03 || static_cast<size_t>(near) * 10 < ratios.size() * 9) return false;
    see("the losses of A are " + short_number(factor, 3) + " times those of B throughout");
    say(c_, "curve_factor");
    return true;
  }

  // Returns the first step at which the column `name` of the two logs differs by more than `rtol`.
  std::optional<int64_t> first_difference(const char* name, double rtol) const {
    const auto x = a_.others.find(name), y = b_.others.find(name);
    if (x == a_.others.end() || y == b_.others.end()) return std::nullopt;
    for (size_t i = 0, j = 0; i < a_.step.size() && j < b_.step.size();) {
      const int64_t step_a = a_.step[i], step_b = b_.step[j] + options_.shift;
      if (step_a == step_b && std::abs(x->second[i] - y->second[j]) > rtol * std::abs(y->second[j])) return step_a;
      i += step_a <= step_b;
      j += step_b <= step_a;
    }
    return std::nullopt;
  }

  void other_columns() {
    const auto norm = first_difference("grad_norm", options_.step_rtol);
    if (norm && (!c_.first_beyond || *norm < *c_.first_beyond)) {
      see("the gradients differ before the losses do: grad_norm from " + at_step(*norm) + " on");
      say(c_, "curve_gradients");
    }
    if (const auto scale = first_difference("loss_scale", options_.lr_rtol))
      see("the loss scales differ from " + at_step(*scale) + " on: an overflow occurred in one run only");
  }

  bool differs_at_first() {
    const auto& first = c_.rows.front();
    if (std::isinf(first.relative) || first.relative <= kRounding) return false;
    const bool begins = first.step <= 1;
    see("the losses differ by " + share_text(first.relative) + " at " + at_step(first.step) +
        (begins ? " already, before any update" : ", the first step that both log"));
    if (first.relative > kLowPrecision) {
      say(c_, begins ? "curve_initial" : "curve_earlier");
      say(c_, "curve_loss");
      return true;
    }
    if (begins) {
      say(c_, "curve_precision");
      say(c_, "curve_random");
    }
    return false;  // later checks may find a more specific cause
  }

  // Detects a single step at which the curves diverge, after they agreed in all earlier steps.
  bool jump() {
    double before = 0;
    for (size_t i = 0; i < c_.rows.size(); ++i) {
      const auto& row = c_.rows[i];
      if (std::isinf(row.relative)) return c_.first_not_finite.has_value();  // already reported
      if (row.relative > options_.step_rtol && i >= 3 && before < options_.step_rtol / 5) {
        const bool stays = c_.diverged && *c_.diverged <= row.step;
        see("up to " + at_step(c_.rows[i - 1].step) + " the losses agree to within " + share_text(before) + "; at " + at_step(row.step) +
            " they differ by " + share_text(row.relative) + (stays ? ", as in all later steps" : ", and less in later steps"));
        say(c_, "curve_jump");
        say(c_, stays ? "curve_changed" : "curve_other_batch");
        return true;
      }
      before = std::max(before, row.relative);
    }
    return false;
  }

  void growth() {
    const auto n = c_.rows.size();
    if (n < kLeastRows) return;
    const auto mean_of = [&](size_t from, size_t to) {
      double sum = 0;
      size_t count = 0;
      for (size_t i = from; i < to; ++i)
        if (std::isfinite(c_.rows[i].relative)) {
          sum += c_.rows[i].relative;
          ++count;
        }
      return count > 0 ? sum / static_cast<double>(count) : 0;
    };
    const double early = mean_of(0, n / 4), late = mean_of(n - n / 4, n);
    if (late > 3 * early) {
      see("the difference grows gradually, from " + share_text(early) + " in the first quarter to " + share_text(late) + " in the last");
      say(c_, "curve_rounding");
      if (!c_.agrees) say(c_, "curve_small");
    } else if (c_.first_beyond || !c_.agrees) {
      see("the difference neither begins at one step nor grows: " + share_text(early) + " in the first quarter, " + share_text(late) +
          " in the last");
      say(c_, "curve_batches");
    }
  }

  HistoryComparison& c_;
  const History& a_;
  const History& b_;
  const HistoryOptions& options_;
};

}  // namespace

void explain_histories(HistoryComparison& comparison, const History& a, const History& b, const HistoryOptions& options) {
  HistoryExplainer(comparison, a, b, options).run();
}

}  // namespace npu_train::detail
