#include "npu_train/tools/validate/precision_validator.hpp"

#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/report.hpp"
#include "precision_validator_side.hpp"

namespace npu_train {

std::string detail::shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const auto size : shape) {
    if (!out.empty()) out += 'x';
    out += std::to_string(size);
  }
  return out;
}

namespace {

using detail::shape_text;

constexpr size_t kMostRows = 10;  // flagged tensors in the text for people

// Returns all tensors as JSON rows, and a table of the flagged ones.
std::pair<Json, ReportTable> tensors_of(const std::vector<ValidatedTensor>& tensors, const char* what) {
  ReportTable all, flagged{.text_rows = kMostRows};
  for (const auto& t : tensors) {
    std::vector<ReportField> row{both("name", what, t.name)};
    if (!t.type.empty()) row.push_back(both("type", t.type));
    row.insert(row.end(), {both("shape", {detail::json_list(t.shape), shape_text(t.shape)}), both("max_diff", t.max_diff),
                           both("mean_diff", t.mean_diff), both("reference_max", "max|b|", t.reference_max), both("allowed", t.allowed),
                           data("flagged", t.flagged)});
    if (!t.note.empty()) row.push_back(data("note", t.note));
    if (t.flagged) flagged.add(row);
    all.add(std::move(row));
  }
  return {all.json(), std::move(flagged)};
}

Json side_json(const ValidatedSide& side) {
  return Json::object({{"device", side.device},
                       {"precision", side.precision},
                       {"dtype", side.dtype},
                       {"emulated", side.emulated},
                       {"saturates", side.saturates}});
}

}  // namespace

std::string ValidatedSide::str() const {
  return device + ", " + precision + (emulated ? " (emulated)" : "") + (saturates ? ", overflow saturates" : "");
}

const ValidatedTensor* ValidationReport::first_flagged() const {
  const auto found = std::find_if(layers.begin(), layers.end(), [](const ValidatedTensor& t) { return t.flagged; });
  return found == layers.end() ? nullptr : &*found;
}

Report report_of(const ValidationReport& v) {
  const auto* first = v.first_flagged();
  auto [layers, flagged_layers] = tensors_of(v.layers, "layer");
  auto [gradients, flagged_gradients] = tensors_of(v.gradients, "gradient");
  Report out("Validation of " + v.judged.device,
             Json::object(
                 {{"all_passed", v.all_passed},
                  {"pass_rate", v.pass_rate},
                  {"samples", v.samples},
                  {"avg_max_diff", v.avg_max_diff},
                  {"avg_mean_diff", v.avg_mean_diff},
                  {"max_max_diff", v.max_max_diff},
                  {"judged", side_json(v.judged)},
                  {"reference", side_json(v.reference)},
                  {"tolerance", Json::object({{"atol", v.atol}, {"rtol", v.rtol}, {"source", v.tolerance_source}, {"noise", v.noise}})}}));
  out.say((v.all_passed ? "validation passed" : "validation FAILED") +
              (first == nullptr || v.all_passed ? "" : ": the first layer that differs is " + first->name),
          v.all_passed ? Tone::Good : Tone::Bad);
  out.say(str_cat(v.samples, " samples, ", percentage(v.pass_rate, 4), " agree; largest difference ", short_number(v.max_max_diff),
                  ", on average ", short_number(v.avg_max_diff), " (mean ", short_number(v.avg_mean_diff), ")"));
  out.facts({shown("judged", v.judged.str()), shown("reference", v.reference.str()),
             shown("tolerance", str_cat("atol ", short_number(v.atol), ", rtol ", short_number(v.rtol), " (", v.tolerance_source,
                                        "), or the effect of ", short_number(v.noise), " roundings of the weights"))});
  ReportTable checks;
  for (const auto& c : v.checks)
    checks.add({both("name", "check", c.name),
                both("passed", "verdict", {c.passed, c.passed ? "passed" : "FAILED", c.passed ? Tone::Good : Tone::Bad}),
                both("max_diff", c.max_diff), both("mean_diff", c.mean_diff), both("relative", c.relative), both("allowed", c.allowed),
                both("worst", c.worst), both("note", c.note)});
  out.table("checks", std::move(checks));
  out.table("", std::move(flagged_layers));
  out.table("", std::move(flagged_gradients));
  out.data(
      {{"first_flagged", first == nullptr ? Json() : Json(first->name)},
       {"layers", std::move(layers)},
       {"gradients", std::move(gradients)},
       {"losses", Json::object({{"judged", detail::json_list(v.judged_losses)}, {"reference", detail::json_list(v.reference_losses)}})}});
  out.notes(v.notes);
  return out;
}

}  // namespace npu_train
