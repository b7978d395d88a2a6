#include "npu_train/engine/weights.hpp"

#include <filesystem>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/torch_checkpoint.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/io/pth_writer.hpp"

namespace npu_train::cli {
namespace {

constexpr const char *kTraining = "training", *kTorchScript = "torchscript", *kPeft = "peft";

struct WeightsArguments {
  std::string from, to, as, set;
  ModelArguments model;
  bool json = false;
};

void check_arguments(const WeightsArguments& args) {
  const std::filesystem::path to(args.to);
  check(args.to.empty() || is_safetensors_name(to) || to.extension() == ".pt" || to.extension() == ".pth", ErrorKind::Usage, "weights",
        "--to ", args.to, ": must end in .safetensors, .pt or .pth");
  check(args.as.empty() || !args.to.empty(), ErrorKind::Usage, "weights", "--as ", args.as, " needs the file to write; hint: --to FILE");
  check(args.model.named() || args.model.keys.empty(), ErrorKind::Usage, "weights", "keys of a model need its name; hint: --model NAME");
  if (!to.parent_path().empty()) make_folder(to.parent_path());
  check_writable({args.to});
}

WeightSet set_of(const WeightsArguments& args) { return weight_set_argument("weights", args.set).value_or(WeightSet::Auto); }

// Returns the set that --weights selects, or else model.weights_key.
WeightSet chosen_set(const WeightsArguments& args, const Parts& parts) {
  if (!args.set.empty() || !args.model.named()) return set_of(args);
  return parts.models.tuning(args.model.part(parts), "model").weights;
}

// Converts the tensors of the file to the model's sizes, including the adapter that the model names, but without a head that the file
// lacks. Returns whether the weights fit.
bool in_sizes_of(const WeightsArguments& args, const Parts& parts, NamedTensors& tensors, Json& document, std::string& text) {
  const auto part = args.model.part(parts);
  const auto from =
      model_from({.model = part, .weights = args.from, .set = chosen_set(args, parts), .fit = ModelSource::Fit::Reported}, parts);
  const auto& report = from.report;
  document.set("fits", report.fits());
  document.set("missing", static_cast<int64_t>(report.missing.size()));
  document.set("unexpected", static_cast<int64_t>(report.unexpected.size()));
  document.set("misshapen", static_cast<int64_t>(report.misshapen.size()));
  text += report.str() + "\n";
  tensors = named_state(*from.model.module);
  if (!report.fresh_head.empty()) std::erase_if(tensors, [&](const auto& t) { return t.first.starts_with(report.fresh_head + "."); });
  return report.fits();
}

void write(const WeightsArguments& args, NamedTensors tensors, Json& document, std::string& text) {
  if (!args.as.empty()) {
    auto renamed = renamed_weights(tensors, args.as);
    text += str_cat("names of ", args.as, ": ", renamed.tensors.size(), " tensors; the source is ", renamed.from.str(), "\n");
    if (!renamed.omitted.empty())
      text += "omitted, since they are not of the network: " + npu_train::detail::first_few(renamed.omitted, 8) + "\n";
    document.set("as", args.as).set("omitted", static_cast<int64_t>(renamed.omitted.size()));
    tensors = std::move(renamed.tensors);
  }
  if (is_safetensors_name(args.to))
    save_safetensors(args.to, tensors, {{"format", "pt"}});
  else
    save_pth(args.to, PthValue::dict(tensors));
  document.set("to", args.to);
  text += "wrote " + args.to + "\n";
}

// Writes the formats that need the complete checkpoint, including its configuration.
int write_checkpoint(const WeightsArguments& args, const Parts& parts) {
  check(!args.to.empty(), ErrorKind::Usage, "weights", "--as ", args.as, " needs the path to write; hint: --to PATH");
  check(!args.model.named(), ErrorKind::Usage, "weights", "--as ", args.as, " has the model of the checkpoint; omit --model");
  std::string text;
  TorchCheckpointFiles written;
  if (args.as == kTraining) {
    written = save_torch_checkpoint(args.from, args.to, args.model.keys, parts, set_of(args));
    if (written.averages)
      text +=
          "model_state_dict has the averages, which the run validated; --weights plain writes the weights that the optimizer's "
          "state belongs to\n";
    if (written.files.size() == 1) text += "no training_history.pth, since the checkpoint is not in a run folder with a history.json\n";
  } else if (args.as == kPeft) {
    save_checkpoint_adapter(args.from, args.to, set_of(args));
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
      written.files.push_back((std::filesystem::path(args.to) / name).string());
  } else {
    check_writable({args.to});
    save_trained_torchscript(args.from, args.to, args.model.keys, parts, set_of(args));
    written.files = {args.to};
  }
  for (const auto& file : written.files) text += "wrote " + file + "\n";
  auto document = Json::object({{"from", args.from}, {"as", args.as}, {"files", npu_train::detail::json_list(written.files)}});
  if (args.as == kTraining) document.set("epoch", written.epoch).set("weights", written.averages ? "ema" : "plain");
  print(args.json, document, text);
  return 0;
}

int convert(const WeightsArguments& args, const Parts& parts) {
  if (args.as == kTraining || args.as == kTorchScript || args.as == kPeft) return write_checkpoint(args, parts);
  check_arguments(args);
  auto file = read_weights(args.from, chosen_set(args, parts));
  auto& tensors = file.tensors;
  int64_t elements = 0;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    elements += tensor.numel();
    names.push_back(name);
  }
  const auto naming = find_naming(names);
  auto document = Json::object({{"from", args.from},
                                {"tensors", static_cast<int64_t>(tensors.size())},
                                {"elements", elements},
                                {"weights", file.averages ? "ema" : "plain"},
                                {"family", naming.family},
                                {"naming", naming.naming}});
  auto text = str_cat(args.from, ": ", tensors.size(), " tensors, ", with_commas(elements), " elements, ", naming.str(), "\n");
  if (!file.chosen.empty()) text += file.chosen + "\n";
  const auto not_finite = not_finite_tensors(tensors);
  document.set("not_finite", static_cast<int64_t>(not_finite.size()));
  if (!not_finite.empty()) text += "warning: values that are NaN or infinite in " + npu_train::detail::first_few(not_finite, 8) + "\n";
  bool fits = true;
  if (args.model.named()) fits = in_sizes_of(args, parts, tensors, document, text);
  if (fits && !args.to.empty()) write(args, std::move(tensors), document, text);
  if (!fits && !args.to.empty()) text += "nothing was written, since the weights do not fit the model\n";
  print(args.json, document, text);
  return fits ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_weights(CLI::App& app, Command& run) {
  auto args = std::make_shared<WeightsArguments>();
  auto* sub = app.add_subcommand("weights", "read, check and convert weights; no code in a file is executed");
  sub->add_option(
         "--from", args->from,
         ".safetensors, .pth, .pt, .bin, .ckpt, .pth.tar, an index of several (*.index.json), a checkpoint folder, or a model folder of "
         "Hugging Face")
      ->required();
  sub->add_option("--to", args->to, "write a .safetensors, .pt or .pth file; with --as training or peft a folder");
  sub->add_option("--weights", args->set,
                  "of a checkpoint or file that has both: plain, or ema (the averages, which are the default if there are any)");
  auto forms = weight_namings();
  forms.insert(forms.end(), {kTraining, kTorchScript, kPeft});
  sub->add_option(
         "--as", args->as,
         "names in the written file: torchvision | timm | hf (transformers 5) | hf4 (transformers 4, files of the Hub); or training: a "
         "checkpoint with its optimizer and the history, for a PyTorch script; or torchscript: the module of a model that came from "
         "TorchScript; or peft: the adapters of a run with model.lora")
      ->check(CLI::IsMember(forms));
  add_model_options(*sub, args->model, "check whether the weights fit this model, and write them in its sizes");
  sub->add_option("keys", args->model.keys, "model.KEY=VALUE ...");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return convert(*args, parts); }; });
}

}  // namespace npu_train::cli
