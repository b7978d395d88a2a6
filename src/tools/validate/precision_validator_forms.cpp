// The comparison of two forms of one model.
#include <algorithm>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "npu_train/tools/align/pair_metrics.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/tools/validate/precision_validator.hpp"
#include "npu_train/train/loop.hpp"
#include "precision_validator_side.hpp"

namespace npu_train {
namespace {

using detail::SeenOutput, detail::ValidationSide;

constexpr const char* kForms = "PrecisionValidator";
constexpr double kLossTolerance = 1e-2;  // relative, per epoch; AdamW takes a full step even if a gradient has only rounding errors

/// Returns the configuration of a side: device and precision from `config`, all other settings from the comparison.
RunConfig side_config(RunConfig config, const FormsOptions& options) {
  config = detail::without_side_effects(std::move(config));
  if (config.precision == "auto") config.precision = "32-true";  // forms are compared, not precisions
  config.model = {};
  config.amp.fp32_modules.clear();
  config.amp.low_precision_modules.clear();
  config.data = {};
  config.data.options.set("batch_size", ConfigNode(options.batch));
  config.data.options.set("num_workers", ConfigNode("0"));
  config.optimizer = {.name = "adamw", .options = {{"lr", options.lr}}};
  config.lr_scheduler = {.name = "constant"};
  config.average = {};
  config.rng = "portable";
  config.trainer.max_epochs = -1;
  config.trainer.max_steps = -1;
  config.trainer.accumulate_grad_batches = 1;
  config.trainer.gradient_checkpointing = "none";
  return config;
}

NamedTensors copied(const NamedTensors& tensors) {
  NamedTensors out;
  for (const auto& [name, value] : tensors) out.emplace_back(name, value.detach().to(at::kCPU).clone());
  return out;
}

/// Copies the original's weights into the form; returns the names of those that were converted.
std::vector<std::string> convert(Model form, const NamedTensors& weights) {
  const auto report = load_weights(form, weights);
  check(report.complete() && report.fresh_head.empty(), ErrorKind::Checkpoint, kForms,
        "the weights of the other form cannot be derived from the original's weights: ", report.str(),
        "; both must be one network in two forms");
  return report.converted;
}

class FormsRun {
 public:
  FormsRun(const PrecisionValidatorOptions& options, const Model& form, const RunConfig& form_config, const Model& original,
           const RunConfig& original_config, const Parts& parts)
      : options_(options),
        form_model_(form),
        model_(original),
        weights_(copied(named_state(*original.module))),
        converted_(convert(form, weights_)),
        form_weights_(copied(named_state(*form.module))),
        form_(side_config(form_config, options.forms), parts, parts.tasks.make(form_config.task, "task", form, parts.metrics), no_data()),
        original_(side_config(original_config, options.forms), parts,
                  parts.tasks.make(original_config.task, "task", original, parts.metrics), no_data()) {
    seed_ = static_cast<uint64_t>(original_config.seed);
  }

  FormsReport run() {
    report_.form = form_.facts();
    report_.original = original_.facts();
    report_.converted = converted_;
    report_.limit = options_.forms.limit;
    const auto batch = random_batch(0);
    report_.input = batch.input().sizes().vec();
    outputs(batch.input());
    layers(batch.input());
    const auto times =
        measure_alternately([&] { form_.predict(batch.input()); }, [&] { original_.predict(batch.input()); }, options_.forms.pairs);
    report_.form_ms = 1e3 * times.one.median();
    report_.original_ms = 1e3 * times.other.median();
    report_.speed = times.ratio();
    train();
    if (!report_.outputs_agree || !report_.layers_agree)
      for (const auto* side : {&report_.form, &report_.original})
        if (side->dtype != "fp32" && report_.notes.empty())
          report_.notes.push_back("in " + side->dtype + " forms differ by rounding; the limit is intended for 32-true");
    load_weights(model_, weights_);
    load_weights(form_model_, form_weights_);
    return std::move(report_);
  }

 private:
  std::shared_ptr<const Dataset> no_data() const {
    return std::make_shared<TensorDataset>(at::zeros({options_.forms.batch, 1}), at::zeros({options_.forms.batch}));
  }

  std::map<std::string, int64_t> sizes_of_images() const {
    const auto side = options_.forms.image;
    return side > 0 ? std::map<std::string, int64_t>{{"height", side}, {"width", side}} : std::map<std::string, int64_t>{};
  }

  Batch random_batch(int64_t number) const {
    auto generator = at::detail::createCPUGenerator(seed_ + static_cast<uint64_t>(number));
    auto batch = example_batch(model_.inputs, {.samples = options_.forms.batch, .sizes = sizes_of_images(), .generator = generator});
    const auto classes = std::max<int64_t>(1, model_.num_classes > 0 ? model_.num_classes : 2);
    batch.set("target", at::randint(classes, {options_.forms.batch}, generator, at::kLong));
    return batch;
  }

  void outputs(const at::Tensor& input) {
    const auto a = form_.predict(input), b = original_.predict(input);
    check(a.sizes() == b.sizes(), ErrorKind::Usage, kForms, "the outputs have the shapes ", a.sizes(), " and ", b.sizes(),
          "; both must be one network in two forms");
    const auto metrics = compare_tensors(a, b);
    report_.max_diff = metrics.max_abs;
    report_.mean_diff = metrics.mean_abs;
    report_.reference_max = b.abs().max().item<double>();
    report_.outputs_agree = metrics.max_abs < options_.forms.limit && metrics.nonfinite_mismatch == 0;
  }

  /// Returns the original's name for a layer of the form.
  std::string name_in_original(const std::string& name) const {
    for (const auto& pair : options_.layer_names)
      if (const auto equal = pair.find('='); equal != std::string::npos && pair.substr(0, equal) == name) return pair.substr(equal + 1);
    return name;
  }

  void layers(const at::Tensor& input) {
    auto of_form = options_, of_original = options_;
    for (size_t i = 0; i < options_.layer_names.size(); ++i) {
      const auto& name = options_.layer_names[i];
      of_form.layer_names[i] = name.substr(0, name.find('='));
      of_original.layer_names[i] = name.substr(name.find('=') == std::string::npos ? 0 : name.find('=') + 1);
    }
    const auto a = form_.layers(input, detail::wanted_layers(of_form)), b = original_.layers(input, detail::wanted_layers(of_original));
    for (const auto& seen : a) {
      const auto name = name_in_original(seen.layer);
      const auto other = std::find_if(b.begin(), b.end(), [&](const SeenOutput& o) { return o.layer == name; });
      if (other == b.end() || other->value.sizes() != seen.value.sizes()) continue;
      const auto metrics = compare_tensors(seen.value, other->value);
      ValidatedTensor row{.name = seen.layer, .type = seen.type, .shape = seen.value.sizes().vec()};
      row.max_diff = metrics.max_abs, row.mean_diff = metrics.mean_abs, row.reference_max = other->value.abs().max().item<double>();
      row.allowed = options_.forms.limit;
      row.flagged = metrics.max_abs >= options_.forms.limit || metrics.nonfinite_mismatch > 0;
      report_.layers_agree &= !row.flagged;
      report_.layers.push_back(std::move(row));
    }
    check(!report_.layers.empty() || options_.layer_names.empty(), ErrorKind::Usage, kForms, "no layer of both forms matches ",
          join(options_.layer_names), "; hint: use NAME=OTHER if the forms name it differently");
  }

  void train() {
    for (int64_t epoch = 0; epoch < options_.forms.epochs; ++epoch) {
      FormsEpoch mean;
      for (int64_t i = 0; i < options_.forms.batches; ++i) {
        const auto batch = random_batch(1 + i);
        mean.form += form_.step(batch).loss / static_cast<double>(options_.forms.batches);
        mean.original += original_.step(batch).loss / static_cast<double>(options_.forms.batches);
      }
      report_.epochs.push_back(mean);
      const double difference = std::abs(mean.form - mean.original) / std::max(std::abs(mean.original), 1e-12);
      report_.largest_loss_difference = std::max(report_.largest_loss_difference, difference);
      report_.training_agrees &= difference <= kLossTolerance && std::isfinite(mean.form) && std::isfinite(mean.original);
    }
  }

  const PrecisionValidatorOptions& options_;
  Model form_model_, model_;
  NamedTensors weights_;
  std::vector<std::string> converted_;
  NamedTensors form_weights_;
  ValidationSide form_, original_;
  uint64_t seed_ = 0;
  FormsReport report_;
};

/// Returns the model of a configuration, with the size and classes of its data; the data are not opened.
Model model_of(const RunConfig& config, const Parts& parts) {
  check(!config.model.name.empty(), ErrorKind::Usage, kForms, "no model is named");
  return model_from({.model = detail::model_for_data(config, parts),
                     .seed = static_cast<uint64_t>(config.seed),
                     .fit = ModelSource::Fit::FreshHead},
                    parts)
      .model;
}

std::string option_of(const RunConfig& config, const Parts& parts, const char* key) {
  ConfigProblems problems;
  const auto part = parts.models.resolve(config.model, "model", problems);
  problems.throw_if_any();
  const auto* node = part.options.find(key);
  return node != nullptr && node->is_scalar() ? node->scalar() : "";
}

ReportTable checks_table(const FormsReport& f) {
  const auto verdict = [](bool passed) { return ReportValue(passed, passed ? "passed" : "FAILED", passed ? Tone::Good : Tone::Bad); };
  const auto below = "below " + short_number(f.limit);
  ReportTable out;
  out.add({shown("check", "outputs"), shown("form", ""), shown("original", ""), shown("largest difference", f.max_diff),
           shown("mean difference", f.mean_diff), shown("allowed", below), shown("verdict", verdict(f.outputs_agree))});
  const auto worst =
      std::max_element(f.layers.begin(), f.layers.end(), [](const auto& a, const auto& b) { return a.max_diff < b.max_diff; });
  if (worst != f.layers.end())
    out.add({shown("check", std::to_string(f.layers.size()) + " layers"), shown("form", worst->name),
             shown("largest difference", worst->max_diff), shown("mean difference", worst->mean_diff), shown("allowed", below),
             shown("verdict", verdict(f.layers_agree))});
  out.add({shown("check", "time, ms"), shown("form", f.form_ms), shown("original", f.original_ms)});
  for (size_t i = 0; i < f.epochs.size(); ++i)
    out.add({shown("check", "epoch " + std::to_string(i + 1) + ", loss"), shown("form", number_value(f.epochs[i].form, 6)),
             shown("original", number_value(f.epochs[i].original, 6)),
             shown("largest difference", std::abs(f.epochs[i].form - f.epochs[i].original)), shown("allowed", "1 %")});
  if (!f.epochs.empty())
    out.add({shown("check", "training"), shown("largest difference", share_value(f.largest_loss_difference, 4)), shown("allowed", "1 %"),
             shown("verdict", verdict(f.training_agrees))});
  return out;
}

}  // namespace

FormsReport PrecisionValidator::compare_forms(const Model& form, const Model& original, const RunConfig& config, const Parts& parts) const {
  return compare_forms(form, config, original, config, parts);
}

FormsReport PrecisionValidator::compare_forms(const Model& form, const RunConfig& form_config, const Model& original,
                                              const RunConfig& original_config, const Parts& parts) const {
  return translated(kForms, [&] {
    check(form.module != nullptr && original.module != nullptr && form.module != original.module, ErrorKind::Usage, kForms,
          "two forms must be two separate modules");
    return FormsRun(options_, form, form_config, original, original_config, parts).run();
  });
}

FormsReport PrecisionValidator::compare_forms(const RunConfig& form, const RunConfig& original, const Parts& parts) const {
  return translated(kForms, [&] {
    const auto b = model_of(original, parts);
    auto given = form;
    given.model.options.erase("weights");  // the original's weights are used
    auto report = compare_forms(model_of(given, parts), form, b, original, parts);
    if (const auto x = option_of(form, parts, "gelu"), y = option_of(original, parts, "gelu"); x != y)
      report.notes.push_back("the forms have different GELUs (" + x + " and " + y + "), which differ by up to 5e-4 in each layer");
    return report;
  });
}

Report report_of(const FormsReport& f) {
  const auto side = [](const ValidatedSide& s) {
    return Json::object({{"device", s.device}, {"precision", s.precision}, {"dtype", s.dtype}, {"emulated", s.emulated}});
  };
  auto rows = Json::array(), losses = Json::array();
  for (const auto& l : f.layers)
    rows.push_back(Json::object({{"name", l.name},
                                 {"type", l.type},
                                 {"max_diff", l.max_diff},
                                 {"mean_diff", l.mean_diff},
                                 {"reference_max", l.reference_max},
                                 {"flagged", l.flagged}}));
  for (const auto& e : f.epochs) losses.push_back(Json::object({{"form", e.form}, {"original", e.original}}));
  Report out("Comparison of two forms of a model", Json::object({{"all_passed", f.passed()},
                                                                 {"form", side(f.form)},
                                                                 {"original", side(f.original)},
                                                                 {"input", detail::json_list(f.input)},
                                                                 {"converted", detail::json_list(f.converted)},
                                                                 {"max_diff", f.max_diff},
                                                                 {"mean_diff", f.mean_diff},
                                                                 {"reference_max", f.reference_max},
                                                                 {"limit", f.limit},
                                                                 {"outputs_agree", f.outputs_agree},
                                                                 {"form_ms", f.form_ms},
                                                                 {"original_ms", f.original_ms},
                                                                 {"speed_up", f.original_ms / f.form_ms},
                                                                 {"speed", f.speed.str()},
                                                                 {"layers", std::move(rows)},
                                                                 {"layers_agree", f.layers_agree},
                                                                 {"epochs", std::move(losses)},
                                                                 {"largest_loss_difference", f.largest_loss_difference},
                                                                 {"training_agrees", f.training_agrees}}));
  out.verdict(std::string("the forms ") + (f.passed() ? "agree" : "DIFFER"), f.passed() ? Tone::Good : Tone::Bad);
  out.facts({shown("form", f.form.str()), shown("original", f.original.str()), shown("input", detail::shape_text(f.input) + ", random"),
             shown("weights", f.converted.empty() ? "copied" : std::to_string(f.converted.size()) + " converted, the others copied")});
  out.table("", checks_table(f));
  out.say("the form is " + f.speed.str() + " (" + short_number(f.original_ms / f.form_ms, 3) + " by medians)");
  out.notes(f.notes);
  return out;
}

}  // namespace npu_train
