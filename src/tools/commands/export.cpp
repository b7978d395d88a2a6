#include <ATen/CPUGeneratorImpl.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "commands.hpp"
#include "model_arguments.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/export/atc.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/export/torchscript.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::cli {
namespace {

constexpr uint64_t kSeed = 0;
constexpr int64_t kCheckedBatch = 5;  // differs from the batches 2 and 3 that the export records
constexpr uint64_t kMaxManifest = uint64_t{64} << 20;

struct ExportArguments {
  std::string to, dtype = "fp32", soc;
  ModelArguments model;
  std::vector<std::string> dynamic;
  std::vector<int64_t> batches{1};
  std::optional<int64_t> opset;
  bool external_data = false, check = false, json = false;
};

// Whether the file's extension selects TorchScript.
bool is_torchscript(const ExportArguments& args) { return std::filesystem::path(args.to).extension() == ".pt"; }

int64_t opset_of(const ExportArguments& args) { return args.opset.value_or(OnnxOptions().opset); }

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct Source {
  Model model;
  Metadata metadata;
  std::optional<Normalization> images;  // normalisation of a model from a checkpoint
};

std::string numbers(const std::vector<double>& values) {
  std::vector<std::string> out;
  for (const auto value : values) out.push_back(shortest(value));
  return join(out, ",");
}

void add_preparation(Metadata& metadata, const Predictor& predictor) {
  const auto& inputs = predictor.model().inputs;
  const bool images = !inputs.empty() && inputs.front().shape.size() == 4;  // a text model has no image preparation
  const auto& normalization = predictor.pipeline().normalization();
  if (images && !normalization.mean.empty()) {
    metadata.emplace_back("npu_train.mean", numbers(normalization.mean));
    metadata.emplace_back("npu_train.std", numbers(normalization.std));
  }
  if (images) metadata.emplace_back("npu_train.transforms", predictor.preparation().steps_text());
  if (!predictor.classes().empty()) metadata.emplace_back("npu_train.classes", join(predictor.classes(), "\n"));
}

Source source_of(const ExportArguments& args, const Parts& parts) {
  const auto predictor = Predictor::from_source(args.model.source("export", /*needs_weights=*/false, parts), "cpu", parts);
  Source out{.model = predictor.model(), .metadata = {}, .images = {}};
  if (!args.model.checkpoint.empty()) {
    const auto manifest = std::filesystem::path(predictor.checkpoint()) / "manifest.json";
    out.metadata.emplace_back("npu_train.checkpoint", hex64(hash64(read_file(manifest, kMaxManifest, ErrorKind::Checkpoint))));
    add_preparation(out.metadata, predictor);
    out.images = predictor.pipeline().normalization();
  }
  out.metadata.emplace_back("npu_train.model", out.model.name);
  if (!out.model.inputs.empty()) out.metadata.emplace_back("npu_train.input", out.model.inputs.front().str());
  return out;
}

Json shape_of(const std::vector<Extent>& shape) {
  Json out = Json::array();
  for (const auto& extent : shape) out.push_back(extent.free() ? Json(extent.name) : Json(extent.size));
  return out;
}

Json values_of(const std::vector<OnnxValue>& values) {
  Json out = Json::array();
  for (const auto& value : values)
    out.push_back(Json::object({{"name", value.name}, {"dtype", c10::getDtypeNames(value.dtype).first}, {"shape", shape_of(value.shape)}}));
  return out;
}

std::string text_of(const char* what, const std::vector<OnnxValue>& values) {
  std::string out;
  for (const auto& value : values) {
    std::vector<std::string> sizes;
    for (const auto& extent : value.shape) sizes.push_back(extent.free() ? extent.name : std::to_string(extent.size));
    out += str_cat("  ", what, " '", value.name, "': ", c10::getDtypeNames(value.dtype).first, " [", join(sizes), "]\n");
  }
  return out;
}

std::string text_of(const FileComparison& c) {
  const auto numbers = printed("largest difference %.2g of the largest output, tolerance %.2g", c.difference, c.tolerance);
  return "  " + c.by + ": " + (c.agrees() ? "agrees" : "differs") + " (" + numbers + ")\n";
}

// Returns the common part of the documents of both formats; `written` is an OnnxExport or a TorchScriptExport.
template <class Written>
Json document_of(const ExportArguments& args, const Source& source, const Written& written) {
  Json operators = Json::object(), metadata = Json::object();
  for (const auto& [name, count] : written.operators) operators.set(name, count);
  for (const auto& [key, value] : source.metadata) metadata.set(key, value);
  return Json::object({{"to", args.to},
                       {"bytes", static_cast<int64_t>(written.bytes)},
                       {"inputs", values_of(written.inputs)},
                       {"outputs", values_of(written.outputs)},
                       {"operators", operators},
                       {"metadata", metadata},
                       {"warnings", npu_train::detail::json_list(written.warnings)}});
}

template <class Written>
std::string description_of(const Written& written) {
  auto out = text_of("input", written.inputs) + text_of("output", written.outputs);
  for (const auto& warning : written.warnings) out += "  warning: " + warning + "\n";
  return out;
}

Batch batch_of(const Model& model, int64_t samples) {
  auto generator = at::detail::createCPUGenerator(kSeed);
  return example_batch(model.inputs, {.samples = samples, .sizes = {}, .zeros = false, .generator = generator});
}

// Whether the file agrees with the model; adds the comparison to the document and the text.
bool agrees(const FileComparison& c, Json& document, std::string& text) {
  document.set(
      "checks",
      Json::array({Json::object({{"by", c.by}, {"difference", c.difference}, {"tolerance", c.tolerance}, {"agrees", c.agrees()}})}));
  text += text_of(c);
  return c.agrees();
}

bool onnx_agrees(const ExportArguments& args, const Model& model, Json& document, std::string& text) {
  const auto tolerance = args.dtype == "fp16" ? kOnnxHalfTolerance : kOnnxTolerance;
  try {
    return agrees(check_onnx(args.to, model, batch_of(model, kCheckedBatch), tolerance), document, text);
  } catch (const Error&) {  // prints the export first: the file exists, even if it cannot be checked (without onnxruntime, for example)
    print(args.json, document, text);
    throw;
  }
}

// Writes the command of Ascend's compiler, and runs it if the compiler is installed.
void compile_for_ascend(const ExportArguments& args, const Source& source, const OnnxExport& written, const OnnxOptions& options,
                        Json& document, std::string& text) {
  AtcOptions atc{.soc = args.soc, .batches = args.batches, .mean = {}, .std = {}};
  if (source.images && !written.inputs.empty() && written.inputs[0].shape.size() == 4) {
    const auto channels = static_cast<size_t>(written.inputs[0].shape[1].size);
    atc.mean = source.images->mean.empty() ? std::vector<double>(channels, 0) : source.images->mean;
    atc.std = source.images->std.empty() ? std::vector<double>(channels, 1) : source.images->std;
  }
  const auto job = write_atc_job(args.to, written, options, atc);
  const bool ran = run_atc(job);
  document.set("atc", Json::object({{"command", npu_train::detail::json_list(job.command)},
                                    {"script", job.script.string()},
                                    {"aipp", job.aipp.string()},
                                    {"output", ran ? Json(job.output.string()) : Json()},
                                    {"remarks", npu_train::detail::json_list(job.remarks)}}));
  text +=
      ran ? "wrote " + job.output.string() + "\n" : "atc is not installed here; run " + job.script.string() + " on a machine with CANN\n";
  if (!job.aipp.empty()) text += "  the offline model takes the bytes of images, normalised by " + job.aipp.string() + "\n";
  for (const auto& remark : job.remarks) text += "  on the chip: " + remark + "\n";
}

int export_to_onnx(const ExportArguments& args, const Source& source) {
  OnnxOptions options{.opset = opset_of(args),
                      .dtype = args.dtype == "fp16" ? at::kHalf : at::kFloat,
                      .dynamic = args.dynamic.empty() && !args.soc.empty() ? std::vector<std::string>{"batch"} : args.dynamic,
                      .external_above = args.external_data ? 0 : OnnxOptions().external_above,
                      .metadata = source.metadata};
  const auto written = export_onnx(source.model, batch_of(source.model, 2), args.to, options);
  auto document = document_of(args, source, written);
  document.set("opset", opset_of(args))
      .set("dtype", args.dtype)
      .set("data", written.data.string())
      .set("data_bytes", static_cast<int64_t>(written.data_bytes));
  auto text =
      str_cat("wrote ", args.to, ": ", human_bytes(static_cast<double>(written.bytes)), ", opset ", opset_of(args), ", ", args.dtype, "\n");
  if (!written.data.empty())
    text += str_cat("  weights in ", written.data.string(), ": ", human_bytes(static_cast<double>(written.data_bytes)),
                    "; keep both files in one folder\n");
  text += description_of(written);
  const bool good = !args.check || onnx_agrees(args, source.model, document, text);
  if (good && !args.soc.empty()) compile_for_ascend(args, source, written, options, document, text);
  print(args.json, document, text);
  return good ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

int export_to_torchscript(const ExportArguments& args, const Source& source) {
  const auto written =
      export_torchscript(source.model, batch_of(source.model, 2), args.to, {.dynamic = args.dynamic, .metadata = source.metadata});
  auto document = document_of(args, source, written);
  auto text =
      str_cat("wrote ", args.to, ": ", human_bytes(static_cast<double>(written.bytes)), ", TorchScript\n") + description_of(written);
  const bool good = !args.check || agrees(check_torchscript(args.to, source.model, batch_of(source.model, kCheckedBatch)), document, text);
  print(args.json, document, text);
  return good ? 0 : static_cast<int>(ErrorKind::CheckFailed);
}

int export_model(const ExportArguments& args, const Parts& parts) {
  check(!is_torchscript(args) || (!args.opset && !args.external_data && args.soc.empty()), ErrorKind::Usage, "export",
        "--opset, --external-data and --atc are for ONNX; --to ", args.to, " is TorchScript; hint: --to FILE.onnx");
  check(
      !is_torchscript(args) || args.dtype == "fp32", ErrorKind::Usage, "export",
      "a TorchScript file has the dtype of the weights; hint: omit --dtype, and convert the module in Python: torch.jit.load(path).half()");
  if (const auto folder = std::filesystem::path(args.to).parent_path(); !folder.empty()) make_folder(folder);
  check_writable({args.to});
  const auto source = source_of(args, parts);
  return is_torchscript(args) ? export_to_torchscript(args, source) : export_to_onnx(args, source);
}

}  // namespace

void add_export(CLI::App& app, Command& run) {
  auto args = std::make_shared<ExportArguments>();
  auto* sub = app.add_subcommand("export", "write a model as an ONNX or TorchScript file");
  add_source_options(*sub, args->model);
  sub->add_option("keys", args->model.keys, "model.KEY=VALUE ...; without weights those of --model are random");
  sub->add_option("--to", args->to, "the file to write: .pt for TorchScript, any other name for ONNX")->required();
  sub->add_option("--opset", args->opset, "of ONNX, 15 to 20, default 17; ATC of CANN 8.0 accepts 15, CANN 8.5 up to 18");
  sub->add_option("--dtype", args->dtype, "of ONNX: fp32, or fp16 with normalisation, softmax and reductions in fp32")
      ->check(CLI::IsMember({"fp32", "fp16"}));
  sub->add_option("--dynamic", args->dynamic,
                  "sizes that stay free, separated by commas: batch, tokens, height, width; default: all but height and width")
      ->delimiter(',');
  sub->add_flag("--external-data", args->external_data, "of ONNX: write the weights to a second file; always done above 2 GB");
  sub->add_flag("--check", args->check,
                "compare the outputs of the file with the model's; of ONNX by onnxruntime, a package of Python (NPU_TRAIN_ONNX_PYTHON)");
  sub->add_option("--atc", args->soc,
                  "also write the command of Ascend's compiler ATC for this chip (Ascend910B1), and run it if it is installed");
  sub->add_option("--atc-batch", args->batches, "batch sizes of the compiled model, separated by commas")
      ->delimiter(',')
      ->check(above_zero());
  sub->add_flag("--json", args->json, "one JSON document on stdout");
  sub->callback([args, &run] { run = [args](const Parts& parts) { return export_model(*args, parts); }; });
}

}  // namespace npu_train::cli
