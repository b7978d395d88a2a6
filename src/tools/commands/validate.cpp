#include <torch/nn/module.h>

#include <memory>
#include <set>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/tools/validate/operator_check.hpp"
#include "npu_train/tools/validate/precision_validator.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct SideArguments {
  std::string device, precision{}, cpu_low_precision{};
  std::vector<std::string> keys{};  // KEY=VALUE for this side only
};

struct ValidateArguments {
  std::vector<std::string> words;
  SideArguments judged, reference{.device = "cpu"};
  PrecisionValidatorOptions options;
  std::string out, html;
  bool json = false, forms = false, operators = false;
};

/// Returns the configuration of a side. Options of the command line override the file and its key=value overrides.
RunConfig side(const ValidateArguments& args, const SideArguments& side, const Parts& parts) {
  auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "validate", "no configuration; give CONFIG.yaml [key=value ...] --device D");
  const auto add = [&words = overrides](const char* key, const std::string& value) {
    if (!value.empty()) words.push_back(std::string(key) + "=" + value);
  };
  add("device", side.device);
  add("precision", side.precision);
  add("cpu_low_precision", side.cpu_low_precision);
  for (const auto& key : side.keys) {
    check(key.find('=') != std::string::npos && key.front() != '=', ErrorKind::Usage, "validate", "'", key,
          "' is not of the form KEY=VALUE, as in --b model.qkv=fused");
    overrides.push_back(key);
  }
  return load_config(file, overrides, parts);
}

/// Whether the models of both sides have different parameters, because they are two forms of one network, or two networks.
bool are_forms(const ValidateArguments& args, const RunConfig& judged, const RunConfig& reference, const Parts& parts) {
  const bool keys = args.judged.keys.size() + args.reference.keys.size() > 0;
  if (!keys || judged.model.name.empty() || reference.model.name.empty()) return false;
  const auto names = [&](const RunConfig& config) {
    std::vector<std::string> out;
    for (const auto& p : parameters_of(*parts.models.make(config.model, "model").module)) out.push_back(p.name);
    return out;
  };
  return names(judged) != names(reference);
}

/// The options that can be combined with --operators.
const std::set<std::string> kOfOperators = {"--help", "--operators", "--device", "--precision", "--cpu-low-precision",
                                            "--a",    "--json",      "--out",    "--html"};

int finish(const ValidateArguments& args, const Report& report, bool passed) {
  if (!args.out.empty()) save_json(args.out, report.json());
  show(report, args.json, args.html);
  return passed ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

int validate(const ValidateArguments& args, const Parts& parts) {
  check_writable({args.out, args.html});
  if (args.operators) {
    const auto report = check_operators(side(args, args.judged, parts), parts);
    return finish(args, report_of(report), report.passed());
  }
  const PrecisionValidator validator(args.options);
  const auto judged = side(args, args.judged, parts);
  auto reference = side(args, args.reference, parts);
  if (args.forms || are_forms(args, judged, reference, parts)) {
    auto original = args.reference;
    if (original.precision.empty()) original.precision = args.judged.precision;  // two forms are compared, not two precisions
    reference = side(args, original, parts);
    const auto report = validator.compare_forms(judged, reference, parts);
    return finish(args, report_of(report), report.passed());
  }
  const auto report = validator.validate(judged, reference, parts);
  return finish(args, report_of(report), report.all_passed);
}

void add_side(CLI::App& sub, const std::string& prefix, const std::string& whose, SideArguments& side) {
  sub.add_option("--" + prefix + "precision", side.precision, "precision " + whose + "; default: that of the configuration");
  sub.add_option("--" + prefix + "cpu-low-precision", side.cpu_low_precision,
                 "how a CPU computes bf16 and fp16 " + whose + ": auto | native | emulated");
}

}  // namespace

void add_validate(CLI::App& app, Command& run) {
  auto args = std::make_shared<ValidateArguments>();
  auto& options = args->options;
  auto* sub = app.add_subcommand("validate", "compare a device or a precision with another: outputs, layers, gradients, training");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  const auto keys = [&](const char* name, const std::string& whose, std::vector<std::string>& list) {
    sub->add_option(name, list,
                    "KEY=VALUE " + whose + " only, may be repeated; models with different weights are compared as two forms of one network")
        ->allow_extra_args(false);
  };
  keys("--a", "of the judged side", args->judged.keys);
  keys("--b", "of the reference", args->reference.keys);
  auto& forms = options.forms;
  sub->add_flag("--forms", args->forms,
                "compare two forms of a model: outputs and layers on a random batch, times, and a short training; needs no data");
  const auto of_forms = [&](const char* name, auto& value, const std::string& text) {
    sub->add_option(name, value, "with two forms: " + text)->capture_default_str();
  };
  of_forms("--forms-batch", forms.batch, "samples of the random batch");
  of_forms("--forms-image", forms.image, "height and width of its images; 0: the model's size");
  of_forms("--forms-limit", forms.limit, "upper bound of the largest difference");
  of_forms("--forms-pairs", forms.pairs, "timed predictions of each form");
  of_forms("--forms-epochs", forms.epochs, "epochs of the training with AdamW; 0: none");
  of_forms("--forms-batches", forms.batches, "batches of an epoch");
  of_forms("--forms-lr", forms.lr, "learning rate");
  auto* operators =
      sub->add_flag("--operators", args->operators,
                    "run each operator of a step alone on the device and on the CPU, with an fp64 judge, forward and backward");
  sub->add_option("--device", args->judged.device, "judged device: cpu, cuda[:i], npu[:i], sim_npu[:i]")->required();
  sub->add_option("--against", args->reference.device, "device of the reference")->capture_default_str();
  add_side(*sub, "", "of the judged side", args->judged);
  add_side(*sub, "against-", "of the reference", args->reference);
  sub->add_option("--samples", options.samples, "number of samples whose outputs are compared")->capture_default_str();
  sub->add_option("--layers-every", options.layers_every, "interval of samples whose layers are compared; 0: none")->capture_default_str();
  sub->add_option("--layer-types", options.layer_types, "classes of layers, as in Linear,Conv2d")->delimiter(',')->capture_default_str();
  sub->add_option("--layer-names", options.layer_names, "layers by name instead; * matches anything; with two forms also NAME=OTHER")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--flag-above", options.flag_above, "difference above which a layer is flagged")->capture_default_str();
  auto* rtol = sub->add_option("--rtol", options.rtol, "relative tolerance; default in bf16 and fp16: the tolerance of the dtype");
  auto* atol = sub->add_option("--atol", options.atol, "absolute tolerance; default as for --rtol");
  rtol->capture_default_str();
  atol->capture_default_str();
  sub->add_option("--noise", options.noise, "also allow the effect of this many roundings of the weights on the reference; 0: none")
      ->capture_default_str();
  sub->add_option("--train-steps", options.train_steps, "steps of the short training run")->capture_default_str();
  sub->add_option("--large", options.large, "factor by which the large inputs are scaled")->capture_default_str();
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->add_option("--out", args->out, "write the JSON document to this file");
  sub->add_option("--html", args->html, "write a self-contained HTML page");
  for (auto* other : sub->get_options())
    if (const auto name = other->get_name(); name.starts_with("--") && !kOfOperators.contains(name)) operators->excludes(other);
  sub->callback([args, &run, rtol, atol] {
    args->options.tolerance_by_dtype = rtol->count() + atol->count() == 0;
    run = [args](const Parts& parts) { return validate(*args, parts); };
  });
}

}  // namespace npu_train::cli
