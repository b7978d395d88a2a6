#include "tools/align/report_rows.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "npu_train/core/text.hpp"
#include "tools/align/compare_parts.hpp"

namespace npu_train::detail {

using Kind = ItemComparison::Kind;

std::string counted(int64_t n, const std::string& one, const std::string& many) {
  return with_commas(n) + " " + (n == 1 ? one : many.empty() ? one + "s" : many);
}

std::vector<Row> rows_of(const DumpComparison& comparison) {
  std::vector<Row> out;
  for (const auto& step : comparison.steps)
    for (const auto& call : step.calls)
      for (const auto& item : call.items) out.push_back({&step, &call, &item});
  return out;
}

std::vector<Row> worst_first(std::vector<Row> rows) {
  const auto rank = [](const Row& r) {
    const bool told = r.item->rounding || r.item->not_judged || r.item->kind == Kind::OneSided || r.item->kind == Kind::NotCompared;
    const int group = r.item->failed ? 0 : told ? 1 : 2;
    return std::pair(group, -r.item->error);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return rank(a) < rank(b); });
  return rows;
}

std::string verdict_of(const ItemComparison& item) {
  if (item.kind == Kind::OneSided) return std::string(item.b.empty() ? "A only" : "B only") + (item.failed ? ", differs" : "");
  if (item.kind == Kind::NotCompared) return "not compared";
  if (item.failed && item.unreadable) return "unreadable";
  return item.failed ? "differs" : item.rounding ? "rounding" : item.not_judged ? "not judged" : "agrees";
}

std::string name_of(const ItemComparison& item) { return item.a.empty() ? item.b : item.a; }

std::string shape_of(const DumpItem& item) {
  std::vector<std::string> parts;
  for (const auto n : item.shape) parts.push_back(std::to_string(n));
  std::string out = "[";
  out += join(parts);
  return item.is_tensor() ? out + "]" : "";
}

std::string short_dtype(const DumpItem& item) { return item.dtype.substr(item.dtype.rfind('.') + 1); }

std::pair<std::string, std::string> crc_of(const ItemComparison& item) {
  const auto either = [](const std::optional<uint32_t>& computed, const std::string& dumped) {
    return computed ? printed("%08x", *computed) : dumped;
  };
  return {either(item.metrics.crc_a, item.item_a.crc), either(item.metrics.crc_b, item.item_b.crc)};
}

std::string kind_name(Kind kind) {
  static constexpr const char* names[] = {"tensor", "statistics", "crc32", "value", "one_sided", "unmatched", "not_compared"};
  return names[static_cast<int>(kind)];
}

std::string cause_name(Divergence::Cause cause) {
  static constexpr const char* names[] = {"input",     "weights",    "layer",      "before", "gradient",
                                          "optimizer", "not_finite", "not_proven", "model",  "unreadable"};
  return names[static_cast<int>(cause)];
}

namespace {

struct Totals {
  int64_t compared = 0, failed = 0, rounding = 0, places = 0, unproven = 0, unreadable = 0, not_judged = 0;
  std::set<std::string> unproven_places;
  bool unproven_update = false;
  int64_t drifted_from = -1;  // first step in which amplified rounding of the weights explains values beyond tolerance

  explicit Totals(const DumpComparison& comparison) {
    for (const auto& step : comparison.steps) {
      compared += step.compared, rounding += step.rounding, places += step.other_places, unproven += step.unproven;
      failed += step.failed - step.unreadable, unreadable += step.unreadable, not_judged += step.not_judged;
      unproven_places.insert(step.unproven_places.begin(), step.unproven_places.end());
      unproven_update |= step.unproven_update;
      if (drifted_from < 0 && step.drifted && step.rounding > 0) drifted_from = step.step;
    }
  }
};

// Returns "55 values exceed the tolerance, all explained by rounding after ReLU and pooling".
std::string explained_text(const Totals& n, const char* more) {
  std::vector<std::string> reasons;
  if (n.rounding > n.places)
    reasons.emplace_back(n.drifted_from < 0 ? "rounding after ReLU and pooling" : "rounding, amplified by ReLU, pooling and updates");
  if (n.places > 0) reasons.emplace_back("kernels that fuse a norm with the operators after it");
  return counted(n.rounding, std::string(more) + "value exceeds", std::string(more) + "values exceed") + " the tolerance, " +
         (n.rounding == 1 ? "" : "all ") + "explained by " + join(reasons, " and ") +
         (n.drifted_from < 0 ? "" : " (from step " + std::to_string(n.drifted_from) + " on, smaller faults would not be detected)");
}

// Formats a share below 1, so that it is never rounded to 100 %.
std::string percent_text(double share) { return printed("%.3g %%", std::min(100 * share, 99.9)); }

std::string verdict_text(const DumpComparison& comparison, const Totals& n) {
  const std::string explained = n.rounding > 0 ? "; " + explained_text(n, n.failed > 0 ? "more " : "") : "";
  const std::string unread = n.unreadable > 0 ? counted(n.unreadable, "value") + " cannot be read" : "";
  if (n.failed > 0 && n.failed == n.unproven)
    return "Nothing is proven: " + counted(n.unproven, "value is", "values are") + " not finite on both sides";
  if (n.failed > 0)
    return "The runs differ: " + counted(n.failed, "value is", "values are") + " beyond tolerance" + (unread.empty() ? "" : "; " + unread) +
           explained;
  if (n.unreadable > 0) return "Nothing is proven: " + unread + "; the rest agrees" + (n.rounding > 0 ? " within rounding" : "");
  if (n.not_judged > 0 && n.not_judged == n.compared) return "Nothing is proven: none of the values could be judged (see the notes)";
  std::vector<std::string> places;
  if (!n.unproven_places.empty()) places.push_back(counted(static_cast<int64_t>(n.unproven_places.size()), "layer"));
  if (n.unproven_update) places.emplace_back("the optimizer's step");
  const std::string open = places.empty() ? "" : "; " + join(places, " and ") + " cannot be proven in this part (see the notes)";
  const std::string open_values =
      n.not_judged == 0 ? ""
                        : "; " + counted(n.not_judged, "value") + " could not be judged, " + percent_text(comparison.judged()) + " were";
  const std::string within = n.rounding > 0 ? " within rounding" : comparison.first.found ? " within tolerance" : "";
  if (comparison.sampled) return "The part that was read agrees" + within + explained + open + open_values + "; the rest was not read";
  if (!comparison.complete)
    return "The common part of both runs agrees" + within + explained + open + open_values +
           "; the rest exists on one side only (see the notes)";
  return "The runs agree" + within + explained + open + open_values;
}

}  // namespace

std::string headline(const DumpComparison& comparison) {
  const Totals n(comparison);
  const auto common = static_cast<int64_t>(comparison.steps.size()), all = common + comparison.lone_steps;
  const std::string few = n.failed > 0 || n.unreadable > 0 || common * 2 >= all
                              ? ""
                              : "Only " + with_commas(common) + " of " + counted(all, "step") + (common == 1 ? " is" : " are") +
                                    " in both dumps, and nothing is known of the others. ";
  return few + verdict_text(comparison, n) + ". " + counted(n.compared, "value") + " of " +
         counted(static_cast<int64_t>(comparison.steps.size()), "step") + (n.compared == 1 ? " was" : " were") + " compared.";
}

namespace {

int64_t nan_on_both(const StepComparison& step) {
  int64_t n = 0;
  for (const auto& call : step.calls) n += std::count_if(call.items.begin(), call.items.end(), is_nan_in_both);
  return n;
}

// Returns "96 elements of weights and 192 of the optimizer's state"; "" if nothing was omitted.
std::string noise_text(const StepComparison& step) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t n, const char* what) {
    if (n > 0) parts.push_back((parts.empty() ? counted(n, "element") : with_commas(n)) + " of " + what);
  };
  add(step.noise_weights, "weights");
  add(step.noise_state, "the optimizer's state");
  add(step.noise_gradients, "gradients");
  return join(parts);
}

// Combines notes on several steps that differ only in their leading number: "steps 0 to 2: 12 to 15 values ...".
class StepNotes {
 public:
  void add(const StepComparison& step, const std::string& text) {
    const auto digits = text.find_first_not_of("0123456789,");
    Group fresh{.rest = text.substr(std::min(digits, text.size())), .numbers = {}, .steps = {}, .rank = {}};
    const auto number = text.substr(0, text.size() - fresh.rest.size());
    fresh.rank = step.rank.empty() || step.rank == "rank0" ? "" : "/" + step.rank;
    auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.rest == fresh.rest && g.rank == fresh.rank && g.numbers.front().empty() == number.empty();
    });
    if (found == groups_.end()) found = groups_.insert(groups_.end(), fresh);
    found->numbers.push_back(number);
    found->steps.push_back(step.step);
  }

  void append_to(std::vector<std::string>& out) const {
    for (const auto& group : groups_) {
      const auto [least, most] = std::minmax_element(group.numbers.begin(), group.numbers.end(), [](const auto& x, const auto& y) {
        return x.size() != y.size() ? x.size() < y.size() : x < y;
      });
      out.push_back((group.steps.size() == 1 ? "step " : "steps ") + steps_text(group.steps) + group.rank + ": " + *least +
                    (*least == *most ? "" : " to " + *most) + group.rest);
    }
  }

 private:
  struct Group {
    std::string rest;  // text after the leading number
    std::vector<std::string> numbers;
    std::vector<int64_t> steps;
    std::string rank;
  };

  static std::string steps_text(const std::vector<int64_t>& steps) {
    std::vector<std::string> out;
    for (size_t i = 0; i < steps.size();) {
      size_t end = i + 1;
      while (end < steps.size() && steps[end] == steps[end - 1] + 1) ++end;
      const auto first = std::to_string(steps[i]), last = std::to_string(steps[end - 1]);
      if (end - i < 3)
        for (size_t k = i; k < end; ++k) out.push_back(std::to_string(steps[k]));
      else
        out.push_back(first + " to " + last);
      i = end;
    }
    return join(out);
  }

  std::vector<Group> groups_;
};

int64_t partly_compared(const StepComparison& step) {
  int64_t out = 0;
  for (const auto& call : step.calls)
    out += std::count_if(call.items.begin(), call.items.end(), [](const auto& item) { return item.partial; });
  return out;
}

}  // namespace

std::vector<std::string> notes_of(const DumpComparison& comparison) {
  auto out = comparison.notes;
  StepNotes notes;
  for (const auto& step : comparison.steps) {
    const auto add = [&](const std::string& text) { notes.add(step, text); };
    for (const auto& note : step.notes) add(note);
    if (step.rounding > 0 && step.drifted)
      add(counted(step.rounding, "value") +
          " beyond tolerance because updates amplified the rounding of weights; no layer differs by itself. "
          "With --atol or --rtol they count as differences");
    else if (step.rounding > 0)
      add(counted(step.rounding, "value") +
          " beyond tolerance because of rounding after ReLU and pooling, or because a fused kernel shows a different place of the "
          "network; no layer differs by itself. With --atol or --rtol they count as differences");
    if (const auto n = step.not_judged - step.not_proven; n > 0)
      add(counted(n, "value") + " not judged: " +
          (step.drifted ? "they differ by more than rounding explains, but so do the inputs or weights from which they are computed, "
                          "which earlier updates changed; no layer differs by itself. "
                        : "what they are computed from differs as well, and calls that are not compared made it; no compared layer "
                          "differs by itself. ") +
          "With --strict they count as differences");
    if (const auto noise = noise_text(step); !noise.empty())
      add(noise +
          " omitted: their gradient is only rounding on both sides (like that of the key bias in "
          "attention), which the optimizer turns into noise");
    if (step.unproven > 0) add(counted(step.unproven, "value") + " not finite on both sides, which proves nothing");
    if (const auto n = nan_on_both(step); n > step.unproven)
      add(counted(n - step.unproven, "value") +
          " with NaN on both sides that do not reach the loss or the weights: masked, or in a step that the loss scale skips");
    if (step.not_compared > 0) add(counted(step.not_compared, "value") + " could not be compared");
    if (step.one_sided > 0) add(counted(step.one_sided, "value or call", "values or calls") + " on one side only");
    if (const auto n = partly_compared(step); n > 0)
      add(counted(n, "value") + " compared in a sample of the elements, and in the statistics of all");
    if (step.skipped > 0) add(counted(step.skipped, "call") + " excluded by --sample or --layers");
  }
  notes.append_to(out);
  return out;
}

}  // namespace npu_train::detail
