#include "npu_train/engine/weights.hpp"

#include <filesystem>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train::cli {
namespace {

struct WeightsArguments {
  std::string from, to, model;
  int64_t num_classes = 1000;
  bool json = false;
};

int convert(const WeightsArguments& args, const Parts& parts) {
  check(args.to.empty() || args.to.ends_with(".safetensors"), ErrorKind::Usage, "weights", "--to ", args.to, ": must end in .safetensors");
  if (const auto folder = std::filesystem::path(args.to).parent_path(); !folder.empty()) make_folder(folder);
  check_writable({args.to});
  const auto tensors = read_weights_file(args.from);
  int64_t elements = 0;
  bool fits = true;
  for (const auto& [name, tensor] : tensors) elements += tensor.numel();
  auto document = Json::object({{"from", args.from}, {"tensors", static_cast<int64_t>(tensors.size())}, {"elements", elements}});
  auto text = c10::str(args.from, ": ", tensors.size(), " tensors, ", with_commas(elements), " elements\n");
  if (!args.model.empty()) {
    PartConfig named{.name = args.model, .options = {{"num_classes", args.num_classes}}, .mark = {}};
    auto model = parts.models.make(named, "model");
    const auto report = load_weights(model, tensors, {.strict = false});
    fits = report.fits();
    document.set("fits", fits);
    document.set("missing", static_cast<int64_t>(report.missing.size()));
    document.set("unexpected", static_cast<int64_t>(report.unexpected.size()));
    document.set("misshapen", static_cast<int64_t>(report.misshapen.size()));
    text += report.str() + "\n";
  }
  if (!args.to.empty()) {
    save_safetensors(args.to, tensors, {{"format", "pt"}});
    document.set("to", args.to);
    text += "wrote " + args.to + "\n";
  }
  print(args.json, document, text);
  return fits ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

}  // namespace

void add_weights(CLI::App& app, Command& run) {
  auto args = std::make_shared<WeightsArguments>();
  auto* sub = app.add_subcommand("weights", "read, check and convert weights; no code in a file is executed");
  sub->add_option("--from", args->from, ".safetensors, .pth, .pt, .bin, .ckpt, .pth.tar, or a checkpoint folder")->required();
  sub->add_option("--to", args->to, "write a .safetensors file");
  sub->add_option("--model", args->model, "check whether the weights fit this model, and report the differences");
  sub->add_option("--num-classes", args->num_classes, "number of classes of that model")->check(above_zero());
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return convert(*args, parts); }; });
}

}  // namespace npu_train::cli
