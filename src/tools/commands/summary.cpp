#include "npu_train/nn/summary.hpp"
#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/model_source.hpp"
#include "npu_train/engine/weights.hpp"
#include "npu_train/io/json.hpp"
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

RunConfig config_of(const SummaryArguments& args, const Parts& parts) {
  const auto [file, overrides] = split_words(args.words);
  auto node = file.empty() ? ConfigNode::map() : load_yaml(file);
  for (const auto& text : overrides) apply_override(node, text);
  if (!args.model.empty()) node.set("model.name", ConfigNode(args.model));
  if (args.image > 0) node.set("model.image_size", ConfigNode(args.image));
  if (args.num_classes > 0) node.set("model.num_classes", ConfigNode(args.num_classes));
  return bind_config(node, parts);
}

/// Returns the model section with the classes and the image size of the data, or of the weights if the data cannot be opened. Values of
/// weights are not read.
PartConfig model_part(const SummaryArguments& args, const Parts& parts) {
  const auto config = config_of(args, parts);
  check(!config.model.name.empty(), ErrorKind::Usage, "summary", "no model; give CONFIG or --model NAME");
  auto part = config.model;
  try {
    part = npu_train::detail::model_for_data(config, parts);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Data) throw;
    log_warning("summary: classes and image size are the model's own, since the data cannot be opened: ", e.what());
  }
  const auto* weights = part.options.find("weights");
  if (weights != nullptr && weights->is_scalar()) part = with_weights_options(part, parts, weights->scalar());
  part.options.erase("weights");
  return part;
}

template <class Rows>
ReportTable rows_of(const Rows& rows) {
  ReportTable out;
  for (const auto& row : rows)
    out.add(
        {both("name", row.name), both("type", row.type),
         both("output_shape", "output",
              {npu_train::detail::json_list(row.output_shape), row.output_shape.empty() ? "" : str_cat(at::IntArrayRef(row.output_shape))}),
         both("parameters", row.parameters), both("flops", "FLOPs", row.flops)});
  return out;
}

Report report_of(const ModelSummary& s, bool by_layer) {
  Report out("Summary of " + s.model, Json::object({{"model", s.model},
                                                    {"input_shape", npu_train::detail::json_list(s.input_shape)},
                                                    {"parameters", s.parameters},
                                                    {"trainable_parameters", s.trainable_parameters},
                                                    {"flops_per_image", s.flops},
                                                    {"layers", rows_of(s.layers).json()}}));
  out.verdict(s.model + ", input " + str_cat(at::IntArrayRef(s.input_shape)) + ": " + with_commas(s.parameters) + " parameters (" +
              with_commas(s.trainable_parameters) + " trainable), " + with_commas(s.flops) +
              " FLOPs per sample (forward; a multiply-add counts as 2)");
  out.table("", rows_of(by_layer || s.blocks.empty() ? s.layers : s.blocks));
  return out;
}

int summary(const SummaryArguments& args, const Parts& parts) {
  const auto part = model_part(args, parts);
  auto model = model_from({.model = parts.models.without_tuning(part)}, parts).model;
  tune(model, part, parts, /*seed=*/0);  // so that adapters are counted, not merged
  show(report_of(summarize(model), args.layers), args.json);
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
