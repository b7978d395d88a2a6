#include "align/report_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

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
  return item.failed ? "differs" : item.rounding ? "rounding" : "agrees";
}

std::string name_of(const ItemComparison& item) { return item.a.empty() ? item.b : item.a; }

std::string shape_of(const DumpItem& item) {
  std::vector<std::string> parts;
  for (const auto n : item.shape) parts.push_back(std::to_string(n));
  return item.is_tensor() ? "[" + join(parts) + "]" : "";
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
  static constexpr const char* names[] = {"input", "weights", "layer", "before", "gradient", "optimizer", "not_finite"};
  return names[static_cast<int>(cause)];
}

std::string headline(const DumpComparison& comparison) {
  int64_t compared = 0, failed = 0, rounding = 0;
  const StepComparison* drifted = nullptr;
  for (const auto& step : comparison.steps) {
    compared += step.compared, failed += step.failed, rounding += step.rounding;
    if (drifted == nullptr && step.drifted && step.rounding > 0) drifted = &step;
  }
  const std::string out = counted(compared, "value") + " of " + counted(static_cast<int64_t>(comparison.steps.size()), "step") +
                          (compared == 1 ? " was" : " were") + " compared: ";
  std::string but;
  if (rounding > 0) but = " but for rounding, which takes " + counted(rounding, failed > 0 ? "more value" : "value") + " beyond tolerance";
  if (drifted != nullptr)
    but += "; from step " + std::to_string(drifted->step) + " on updates amplify it, and smaller faults would not be seen";
  if (failed > 0)
    return out + "the runs differ, " + with_commas(failed) + " beyond tolerance" + (but.empty() ? "" : "; the rest agrees" + but);
  if (comparison.sampled) return out + "the part that was read agrees" + but + "; the rest was not looked at";
  if (!comparison.complete) return out + "what both have agrees" + but + ", but they do not have the same (see the notes)";
  if (rounding > 0) return out + "the runs agree" + but;
  return out + (comparison.first.found ? "the runs agree within tolerance" : "the runs agree");
}

namespace {

// Values with NaN on both sides, at the same places or nothing would agree.
int64_t nan_on_both(const StepComparison& step) {
  int64_t n = 0;
  const auto nan = [](const DumpItem& item) { return item.max && std::isnan(*item.max); };
  for (const auto& call : step.calls)
    for (const auto& item : call.items) {
      const bool values = item.kind == Kind::Tensor && item.metrics.nan_a > 0 && item.metrics.nan_b > 0;
      n += values || (item.kind == Kind::Statistics && nan(item.item_a) && nan(item.item_b));
    }
  return n;
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
    if (step.noise_elements > 0)
      out.push_back(
          where + counted(step.noise_elements, "element") +
          " of weights and their state left out: their gradient is nothing but rounding on both sides (as that of a key's bias in "
          "attention), and the optimizer makes steps of noise of it");
    if (const auto n = nan_on_both(step); n > 0)
      out.push_back(where + counted(n, "value") + " with NaN on both sides; equal NaN count as agreement, and prove nothing");
    if (step.not_compared > 0) out.push_back(where + counted(step.not_compared, "value") + " could not be compared");
    if (step.one_sided > 0) out.push_back(where + counted(step.one_sided, "value or call", "values or calls") + " on one side only");
    if (step.skipped > 0) out.push_back(where + counted(step.skipped, "call") + " left out by --sample or --layers");
  }
  return out;
}

}  // namespace npu_train::detail
