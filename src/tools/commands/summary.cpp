#include "npu_train/nn/summary.hpp"
#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/tools/report/text_table.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {
namespace {

struct SummaryArguments {
  std::vector<std::string> words;
  std::string model;
  int64_t image = 0, num_classes = 0;
  bool layers = false, json = false;
};

Json shape_of(const std::vector<int64_t>& shape) {
  Json out = Json::array();
  for (const auto size : shape) out.push_back(size);
  return out;
}

/// Returns the model section, with the classes and the image size of the data if the data can be opened; a summary does not need them.
PartConfig model_part(const SummaryArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  auto node = ConfigNode::map();
  if (file.empty())
    for (const auto& text : overrides) apply_override(node, text);
  auto config = file.empty() ? bind_config(node, parts) : load_config(file, overrides, parts);
  auto& part = config.model;
  if (!args.model.empty()) part.name = args.model;
  check(!part.name.empty(), ErrorKind::Usage, "summary", "no model; give CONFIG or --model NAME");
  if (args.image > 0) part.options.set("image_size", ConfigNode(args.image));
  if (args.num_classes > 0) part.options.set("num_classes", ConfigNode(args.num_classes));
  part.options.erase("weights");
  try {
    return npu_train::detail::model_for_data(config, parts);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Data) throw;
    log_warning("summary: classes and image size are the model's own, since the data cannot be opened: ", e.what());
    return part;
  }
}

/// Prints totals first; omits empty columns.
std::string text_of(const ModelSummary& s, bool by_layer) {
  const auto shape = [](const std::vector<int64_t>& sizes) { return sizes.empty() ? std::string() : str_cat(at::IntArrayRef(sizes)); };
  TextTable table({"name", "type", "output", "parameters", "FLOPs"});
  for (const auto& row : by_layer || s.blocks.empty() ? s.layers : s.blocks)
    table.add_row({row.name, row.type, shape(row.output_shape), with_commas(row.parameters), with_commas(row.flops)});
  return s.model + ", input " + shape(s.input_shape) + ": " + with_commas(s.parameters) + " parameters (" +
         with_commas(s.trainable_parameters) + " trainable), " + with_commas(s.flops) +
         " FLOPs per sample (forward; a multiply-add counts as 2)\n\n" + table.str(terminal_columns());
}

int summary(const SummaryArguments& args, const Parts& parts) {
  const auto part = model_part(args, parts);
  auto model = model_from({.model = parts.models.without_tuning(part)}, parts).model;
  tune(model, part, parts, /*seed=*/0);  // adapters are counted, not merged
  const auto s = summarize(model);
  Json layers = Json::array();
  for (const auto& layer : s.layers)
    layers.push_back(Json::object({{"name", layer.name},
                                   {"type", layer.type},
                                   {"output_shape", shape_of(layer.output_shape)},
                                   {"parameters", layer.parameters},
                                   {"flops", layer.flops}}));
  print(args.json,
        Json::object({{"model", s.model},
                      {"input_shape", shape_of(s.input_shape)},
                      {"parameters", s.parameters},
                      {"trainable_parameters", s.trainable_parameters},
                      {"flops_per_image", s.flops},
                      {"layers", layers}}),
        text_of(s, args.layers));
  return 0;
}

}  // namespace

void add_summary(CLI::App& app, Command& run) {
  auto args = std::make_shared<SummaryArguments>();
  auto* sub = app.add_subcommand("summary", "print layers, shapes, parameters and FLOPs of a model");
  sub->add_option("config", args->words, "CONFIG.yaml [key=value ...]");
  sub->add_option("--model", args->model, "alternatively: name of a model");
  sub->add_option("--image", args->image, "height and width of the images");
  sub->add_option("--num-classes", args->num_classes, "outputs of the head");
  sub->add_flag("--layers", args->layers, "print every layer, not only the blocks");
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return summary(*args, parts); }; });
}

}  // namespace npu_train::cli
