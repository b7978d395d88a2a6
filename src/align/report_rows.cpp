#include "align/report_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "align/compare_parts.hpp"
#include "npu_train/core/text.hpp"

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
    const bool told = r.item->rounding || r.item->kind == Kind::OneSided || r.item->kind == Kind::NotCompared;
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
  return item.failed ? "differs" : item.rounding ? "rounding" : "agrees";
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
    char text[16] = "";
    if (computed) std::snprintf(text, sizeof text, "%08x", *computed);
    return computed ? std::string(text) : dumped;
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

std::string headline(const DumpComparison& comparison) {
  int64_t compared = 0, failed = 0, rounding = 0, unproven = 0, unreadable = 0;
  const StepComparison* drifted = nullptr;
  for (const auto& step : comparison.steps) {
    compared += step.compared, failed += step.failed, rounding += step.rounding, unproven += step.unproven;
    failed -= step.unreadable, unreadable += step.unreadable;
    if (drifted == nullptr && step.drifted && step.rounding > 0) drifted = &step;
  }
  const std::string out = counted(compared, "value") + " of " + counted(static_cast<int64_t>(comparison.steps.size()), "step") +
                          (compared == 1 ? " was" : " were") + " compared: ";
  std::string but;
  if (rounding > 0) but = " but for rounding, which takes " + counted(rounding, failed > 0 ? "more value" : "value") + " beyond tolerance";
  if (drifted != nullptr)
    but += "; from step " + std::to_string(drifted->step) + " on updates amplify it, and smaller faults would not be seen";
  if (failed > 0 && failed == unproven)
    return out + "nothing is proven, " + counted(unproven, "value is", "values are") + " not finite on both sides";
  const std::string unread = unreadable > 0 ? counted(unreadable, "value") + " cannot be read" : "";
  if (failed > 0)
    return out + "the runs differ, " + with_commas(failed) + " beyond tolerance" + (unread.empty() ? "" : "; " + unread) +
           (but.empty() ? "" : "; the rest agrees" + but);
  if (unreadable > 0) return out + "nothing is proven, " + unread + "; the rest agrees" + but;
  if (comparison.sampled) return out + "the part that was read agrees" + but + "; the rest was not looked at";
  if (!comparison.complete) return out + "what both have agrees" + but + ", but they do not have the same (see the notes)";
  if (rounding > 0) return out + "the runs agree" + but;
  return out + (comparison.first.found ? "the runs agree within tolerance" : "the runs agree");
}

namespace {

int64_t nan_on_both(const StepComparison& step) {
  int64_t n = 0;
  for (const auto& call : step.calls) n += std::count_if(call.items.begin(), call.items.end(), is_nan_in_both);
  return n;
}

// "96 elements of weights and 192 of the optimizer's state"; "" where nothing was left out.
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

}  // namespace

std::vector<std::string> notes_of(const DumpComparison& comparison) {
  auto out = comparison.notes;
  for (const auto& step : comparison.steps) {
    const auto where = "step " + std::to_string(step.step) + (step.rank.empty() || step.rank == "rank0" ? "" : "/" + step.rank) + ": ";
    for (const auto& note : step.notes) out.push_back(where + note);
    if (step.rounding > 0 && step.drifted)
      out.push_back(where + counted(step.rounding, "value") +
                    " beyond tolerance by up to a tenth: weights came in with what updates made of rounding; no layer differs by itself. "
                    "--atol or --rtol counts them");
    else if (step.rounding > 0)
      out.push_back(where + counted(step.rounding, "value") +
                    " beyond tolerance by what rounding does behind ReLU and pooling, or where a fused kernel shows another place of the "
                    "network; no layer differs by itself. --atol or --rtol counts them");
    if (const auto noise = noise_text(step); !noise.empty())
      out.push_back(where + noise +
                    " left out: their gradient is nothing but rounding on both sides (as that of a key's bias in "
                    "attention), and the optimizer makes steps of noise of it");
    if (step.unproven > 0) out.push_back(where + counted(step.unproven, "value") + " not finite on both sides, which proves nothing");
    if (const auto n = nan_on_both(step); n > step.unproven)
      out.push_back(where + counted(n - step.unproven, "value") +
                    " with NaN on both sides, which do not reach the loss or the weights: masked, or of a step that the loss scale skips");
    if (step.not_compared > 0) out.push_back(where + counted(step.not_compared, "value") + " could not be compared");
    if (step.one_sided > 0) out.push_back(where + counted(step.one_sided, "value or call", "values or calls") + " on one side only");
    if (step.skipped > 0) out.push_back(where + counted(step.skipped, "call") + " left out by --sample or --layers");
  }
  return out;
}

}  // namespace npu_train::detail
