#include "npu_train/tools/validate/precision_validator.hpp"

#include <algorithm>

#include "npu_train/core/str_cat.hpp"
#include "npu_train/tools/report/number.hpp"
#include "npu_train/tools/report/text_table.hpp"
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

void add_flagged(std::string& out, const char* what, const std::vector<ValidatedTensor>& tensors, size_t width) {
  TextTable table({what, "type", "shape", "max_diff", "mean_diff", "max|b|", "allowed"});
  size_t flagged = 0;
  for (const auto& t : tensors) {
    if (!t.flagged || ++flagged > kMostRows) continue;
    table.add_row({t.name, t.type, shape_text(t.shape), short_number(t.max_diff), short_number(t.mean_diff), short_number(t.reference_max),
                   short_number(t.allowed)});
  }
  if (flagged == 0) return;
  out += "\n" + table.str(width);
  if (flagged > kMostRows) out += str_cat("and ", flagged - kMostRows, " more\n");
}

Json tensors_json(const std::vector<ValidatedTensor>& tensors) {
  Json out = Json::array();
  for (const auto& t : tensors) {
    Json shape = Json::array();
    for (const auto size : t.shape) shape.push_back(size);
    Json row = Json::object({{"name", t.name}});
    if (!t.type.empty()) row.set("type", t.type);
    row.set("shape", std::move(shape));
    row.set("max_diff", t.max_diff);
    row.set("mean_diff", t.mean_diff);
    row.set("reference_max", t.reference_max);
    row.set("allowed", t.allowed);
    row.set("flagged", t.flagged);
    if (!t.note.empty()) row.set("note", t.note);
    out.push_back(std::move(row));
  }
  return out;
}

Json side_json(const ValidatedSide& side) {
  return Json::object({{"device", side.device},
                       {"precision", side.precision},
                       {"dtype", side.dtype},
                       {"emulated", side.emulated},
                       {"saturates", side.saturates}});
}

Json numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) out.push_back(value);
  return out;
}

}  // namespace

std::string ValidatedSide::str() const {
  return device + ", " + precision + (emulated ? " (emulated)" : "") + (saturates ? ", overflow saturates" : "");
}

const ValidatedTensor* ValidationReport::first_flagged() const {
  const auto found = std::find_if(layers.begin(), layers.end(), [](const ValidatedTensor& t) { return t.flagged; });
  return found == layers.end() ? nullptr : &*found;
}

std::string ValidationReport::str(size_t width) const {
  std::string out = all_passed ? "validation passed" : "validation FAILED";
  if (const auto* layer = first_flagged(); layer != nullptr && !all_passed) out += ": the first layer that differs is " + layer->name;
  out += str_cat("\n", samples, " samples, ", short_number(100 * pass_rate), " % agree; largest difference ", short_number(max_max_diff),
                 ", on average ", short_number(avg_max_diff), " (mean ", short_number(avg_mean_diff), ")\n\n");
  out += str_cat("judged:    ", judged.str(), "\nreference: ", reference.str(), "\ntolerance: atol ", short_number(atol), ", rtol ",
                 short_number(rtol), " (", tolerance_source, "), or the effect of ", short_number(noise), " roundings of the weights\n\n");
  TextTable table({"check", "verdict", "max_diff", "mean_diff", "relative", "allowed", "worst", "note"});
  for (const auto& c : checks)
    table.add_row({c.name, c.passed ? "passed" : "FAILED", short_number(c.max_diff), short_number(c.mean_diff), short_number(c.relative),
                   short_number(c.allowed), c.worst, c.note});
  out += table.str(width);
  add_flagged(out, "layer", layers, width);
  add_flagged(out, "gradient", gradients, width);
  if (!notes.empty()) out += "\n";
  for (const auto& note : notes) out += "note: " + note + "\n";
  return out;
}

Json ValidationReport::to_json() const {
  Json rows = Json::array();
  for (const auto& c : checks)
    rows.push_back(Json::object({{"name", c.name},
                                 {"passed", c.passed},
                                 {"max_diff", c.max_diff},
                                 {"mean_diff", c.mean_diff},
                                 {"relative", c.relative},
                                 {"allowed", c.allowed},
                                 {"worst", c.worst},
                                 {"note", c.note}}));
  Json said = Json::array();
  for (const auto& note : notes) said.push_back(note);
  const auto* first = first_flagged();
  return Json::object({{"all_passed", all_passed},
                       {"pass_rate", pass_rate},
                       {"samples", samples},
                       {"avg_max_diff", avg_max_diff},
                       {"avg_mean_diff", avg_mean_diff},
                       {"max_max_diff", max_max_diff},
                       {"judged", side_json(judged)},
                       {"reference", side_json(reference)},
                       {"tolerance", Json::object({{"atol", atol}, {"rtol", rtol}, {"source", tolerance_source}, {"noise", noise}})},
                       {"checks", std::move(rows)},
                       {"first_flagged", first == nullptr ? Json() : Json(first->name)},
                       {"layers", tensors_json(layers)},
                       {"gradients", tensors_json(gradients)},
                       {"losses", Json::object({{"judged", numbers(judged_losses)}, {"reference", numbers(reference_losses)}})},
                       {"notes", std::move(said)}});
}

}  // namespace npu_train
