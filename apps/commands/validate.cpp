#include <memory>

#include "../cli.hpp"
#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/engine/precision_validator.hpp"

namespace npu_train::cli {
namespace {

struct SideArguments {
  std::string device, precision{}, cpu_low_precision{};
};

struct ValidateArguments {
  std::vector<std::string> words;
  SideArguments judged, reference{.device = "cpu"};
  PrecisionValidatorOptions options;
  std::string out;
  bool json = false;
};

/// The configuration as this side runs it: what the command line says goes over the file and its overrides.
RunConfig side(const ValidateArguments& args, const SideArguments& side, const Parts& parts) {
  auto [file, overrides] = split_words(args.words);
  check(!file.empty(), ErrorKind::Usage, "validate", "no configuration; give CONFIG.yaml [key=value ...] --device D");
  const auto add = [&words = overrides](const char* key, const std::string& value) {
    if (!value.empty()) words.push_back(std::string(key) + "=" + value);
  };
  add("device", side.device);
  add("precision", side.precision);
  add("cpu_low_precision", side.cpu_low_precision);
  return load_config(file, overrides, parts);
}

int validate(const ValidateArguments& args) {
  const auto parts = builtin_parts();
  const PrecisionValidator validator(args.options);
  const auto report = validator.validate(side(args, args.judged, parts), side(args, args.reference, parts), parts);
  if (!args.out.empty()) save_json(args.out, report.to_json());
  print(args.json, args.json ? report.to_json() : Json(), args.json ? "" : report.str(terminal_columns()));
  return report.all_passed ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

void add_side(CLI::App& sub, const std::string& prefix, const std::string& whose, SideArguments& side) {
  sub.add_option("--" + prefix + "precision", side.precision, "precision " + whose + "; default: the configuration's");
  sub.add_option("--" + prefix + "cpu-low-precision", side.cpu_low_precision,
                 "how a CPU computes bf16 and fp16 " + whose + ": auto | native | emulated");
}

}  // namespace

void add_validate(CLI::App& app, Command& run) {
  auto args = std::make_shared<ValidateArguments>();
  auto& options = args->options;
  auto* sub = app.add_subcommand("validate", "compare a device or a precision with another one: outputs, layers, gradients, training");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_option("--device", args->judged.device, "what is judged: cpu, cuda[:i], npu[:i], sim_npu[:i]")->required();
  sub->add_option("--against", args->reference.device, "device of the reference")->capture_default_str();
  add_side(*sub, "", "of what is judged", args->judged);
  add_side(*sub, "against-", "of the reference", args->reference);
  sub->add_option("--samples", options.samples, "samples whose outputs are compared")->capture_default_str();
  sub->add_option("--layers-every", options.layers_every, "compare layers of every so many samples; 0: none")->capture_default_str();
  sub->add_option("--layer-types", options.layer_types, "classes of layers, as Linear,Conv2d")->delimiter(',')->capture_default_str();
  sub->add_option("--flag-above", options.flag_above, "difference of a layer that is flagged")->capture_default_str();
  auto* rtol = sub->add_option("--rtol", options.rtol, "relative tolerance; default in bf16 and fp16: that of the dtype");
  auto* atol = sub->add_option("--atol", options.atol, "absolute tolerance; the same");
  rtol->capture_default_str();
  atol->capture_default_str();
  sub->add_option("--noise", options.noise, "also allow what so many roundings of the weights do to the reference; 0: nothing")
      ->capture_default_str();
  sub->add_option("--train-steps", options.train_steps, "steps of the short training run")->capture_default_str();
  sub->add_option("--large", options.large, "factor of the large inputs")->capture_default_str();
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->add_option("--out", args->out, "write the JSON document to this file");
  sub->callback([args, &run, rtol, atol] {
    args->options.tolerance_by_dtype = rtol->count() + atol->count() == 0;
    run = [args] { return validate(*args); };
  });
}

}  // namespace npu_train::cli
