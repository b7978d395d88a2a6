#include "align/report_rows.hpp"

#include <algorithm>
#include <cmath>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {

using Kind = ItemComparison::Kind;

Json texts(const std::vector<std::string>& list) {
  auto out = Json::array();
  for (const auto& text : list) out.push_back(text);
  return out;
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
    const int group = r.item->failed ? 0 : r.item->kind == Kind::OneSided || r.item->kind == Kind::NotCompared ? 1 : 2;
    return std::pair(group, -r.item->error);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return rank(a) < rank(b); });
  return rows;
}

std::string verdict_of(const ItemComparison& item) {
  if (item.kind == Kind::OneSided) return std::string(item.b.empty() ? "A only" : "B only") + (item.failed ? ", differs" : "");
  if (item.kind == Kind::NotCompared) return "not compared";
  return item.failed ? "differs" : "agrees";
}

std::string name_of(const ItemComparison& item) { return item.a.empty() ? item.b : item.a; }

std::string shape_of(const DumpItem& item) {
  std::vector<std::string> parts;
  for (const auto n : item.shape) parts.push_back(std::to_string(n));
  return item.is_tensor() ? "[" + join(parts) + "]" : "";
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
  int64_t compared = 0, failed = 0;
  for (const auto& step : comparison.steps) compared += step.compared, failed += step.failed;
  std::string out = with_commas(compared) + " values of " + std::to_string(comparison.steps.size()) + " step" +
                    (comparison.steps.size() == 1 ? "" : "s") + " were compared: ";
  if (failed > 0) return out + "the runs differ, " + with_commas(failed) + " beyond tolerance";
  if (comparison.sampled) return out + "the part that was read agrees; the rest was not looked at";
  if (!comparison.complete) return out + "what both have agrees, but they do not have the same (see the notes)";
  return out + (comparison.first.found ? "the runs agree within tolerance" : "the runs agree");
}

std::vector<std::string> notes_of(const DumpComparison& comparison) {
  auto out = comparison.notes;
  for (const auto& step : comparison.steps) {
    const auto where = "step " + std::to_string(step.step) + ": ";
    for (const auto& note : step.notes) out.push_back(where + note);
    if (step.not_compared > 0) out.push_back(where + with_commas(step.not_compared) + " values could not be compared");
    if (step.one_sided > 0) out.push_back(where + with_commas(step.one_sided) + " values or calls are on one side only");
    if (step.skipped > 0) out.push_back(where + with_commas(step.skipped) + " calls were left out by --sample or --layers");
  }
  return out;
}

}  // namespace npu_train::detail
