#include "train/overflow_advice.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {
namespace {

std::string scientific(double value) { return value < 0 ? "-" : printed("%.3g", value); }

std::string numbers(const std::vector<int64_t>& values) {
  std::vector<std::string> out;
  for (const auto v : values) out.push_back(std::to_string(v));
  return join(out);
}

// Returns "layer1.0" for "after layer1.0"; "" if `place` is not a layer.
std::string layer_itself(const std::string& place) {
  const std::string after = "after ";
  return place.starts_with(after) ? place.substr(after.size()) : place.starts_with("before ") ? "" : place;
}

// Names only the layer, because only the model knows to which block the layer belongs.
std::string in_fp32(const std::string& layer) {
  return (layer.empty() ? "compute the first block" : "compute the block of " + layer) +
         " in fp32: amp.fp32_modules (npu_tool summary names the blocks), or Fp32Region in your own forward";
}

bool is_low(const OverflowReport& r) { return r.precision != "32-true"; }

const LayerRange* largest_in_fp32(const OverflowReport& report) {
  const LayerRange* out = nullptr;
  for (const auto& l : report.layers)
    if (std::isfinite(l.largest_fp32) && (out == nullptr || l.largest_fp32 > out->largest_fp32)) out = &l;
  return out;
}

}  // namespace

std::vector<std::string> detail::overflow_advice(const OverflowReport& r) {
  std::vector<std::string> out;
  const auto add = [&](std::string text) { out.push_back(std::move(text)); };
  if (!r.samples.empty()) add("look at sample " + numbers(r.samples) + " of the data: the other samples of the batch cause no overflow");
  const auto* peak = largest_in_fp32(r);
  if (r.source.phase == "forward") {
    const auto layer = layer_itself(r.source.layer);
    if (peak != nullptr && peak->largest_fp32 > r.largest_of_dtype)
      add("the values of " + peak->layer + " reach " + scientific(peak->largest_fp32) + " in fp32, more than the " +
          scientific(r.largest_of_dtype) + " of " + r.precision + ": bf16-mixed has the range of fp32");
    if (r.source.op == "to" || r.source.op == "_to_copy")
      add("a weight or an input of " + (layer.empty() ? "the first layer" : layer) + " is itself beyond " + scientific(r.largest_of_dtype) +
          ", before anything is computed");
    if (!r.broken_weight.empty())
      add(r.broken_weight +
          " itself is not finite: an earlier step broke it; resume from a checkpoint before that step, with --detect-anomaly");
    else if (is_low(r))
      add(in_fp32(layer));
    add("if it began during training, the weights have grown: a lower learning rate, trainer.gradient_clip_val, more warm-up");
  } else if (r.source.phase == "loss") {
    add("the loss is not finite although its inputs are: a log or a division by zero in it needs an eps, and targets must be in range");
  } else if (r.source.phase == "backward") {
    if (r.loss_scale > 1)
      add("the loss scale of " + scientific(r.loss_scale) + " is too large for these gradients: a dynamic one falls with overflows down " +
          "to grad_scaler.min_scale, and grad_scaler.max_scale keeps it below");
    if (r.parameters.size() == 1) add("only the gradient of " + r.parameters[0] + " is not finite: look at what it scales or divides");
    if (is_low(r))
      add(in_fp32(layer_itself(r.source.layer)) + "; trainer.gradient_clip_val limits only the gradients that the update uses");
    add("sqrt, log, norm and division near zero have large gradients: an eps inside them helps");
  } else {
    add("the replay found every value finite: the overflow came from another rank, or the model does not repeat (npu_tool "
        "verify-determinism)");
  }
  return out;
}

std::string OverflowSource::str() const {
  if (op.empty()) return phase;
  return phase + ", " + op + (layer.empty() ? "" : layer.starts_with("after ") ? " " + layer : " of " + layer);
}

std::string OverflowReport::str() const {
  auto out = str_cat("overflow at attempt ", attempt, ", ", skip_streak, " in a row; ", precision, ", loss scale ", scientific(loss_scale),
                     ", loss ", scientific(loss), "\nsource: ", source.str(), " (micro-batch ", micro_batch, ")\n");
  if (!samples.empty()) out += "samples that cause it: " + numbers(samples) + "\n";
  out += str_cat("parameters with a gradient that is not finite: ", parameters.size(), " of ", parameters_in_all,
                 parameters.empty() ? "" : ": ", detail::first_few(parameters, 5), "\n");
  size_t width = 5;
  for (const auto& l : layers) width = std::max(width, l.layer.size());
  const auto row = [&](const std::string& layer, const std::string& a, const std::string& b, const std::string& c) {
    out += printed("%-*s  %12s  %12s  %12s\n", static_cast<int>(width), layer.c_str(), a.c_str(), b.c_str(), c.c_str());
  };
  row("layer", "output", "in fp32", "gradient");
  for (const auto& l : layers) row(l.layer, scientific(l.largest), scientific(l.largest_fp32), scientific(l.gradient));
  out += "(largest magnitudes; the largest number is " + scientific(largest_of_dtype) +
         (loss_scale != 1 ? "; gradients are scaled)\n" : ")\n");
  for (const auto& line : advice) out += "- " + line + "\n";
  return out;
}

Json OverflowReport::json() const {
  Json rows = Json::array();
  for (const auto& l : layers)
    rows.push_back(Json::object(
        {{"layer", l.layer}, {"op", l.op}, {"largest", l.largest}, {"largest_fp32", l.largest_fp32}, {"gradient", l.gradient}}));
  return Json::object({{"attempt", attempt},
                       {"skip_streak", skip_streak},
                       {"precision", precision},
                       {"loss_scale", loss_scale},
                       {"loss", loss},
                       {"micro_batch", micro_batch},
                       {"largest_of_dtype", largest_of_dtype},
                       {"source", Json::object({{"phase", source.phase}, {"layer", source.layer}, {"op", source.op}})},
                       {"broken_weight", broken_weight},
                       {"samples", detail::json_list(samples)},
                       {"parameters", detail::json_list(parameters)},
                       {"parameters_in_all", parameters_in_all},
                       {"layers", rows},
                       {"advice", detail::json_list(advice)}});
}

void write_overflow_report(const OverflowReport& report, const std::string& folder) {
  namespace fs = std::filesystem;
  write_file_atomic(fs::path(folder) / "overflow_report.txt", report.str());
  save_json(fs::path(folder) / "overflow_report.json", report.json());
}

}  // namespace npu_train
