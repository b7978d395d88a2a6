#include "npu_train/export/onnx.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "export/compare.hpp"
#include "export/half.hpp"
#include "export/lowering.hpp"
#include "export/onnx_writer.hpp"
#include "export/onnxruntime.hpp"
#include "export/rows.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/train/model_task.hpp"

namespace npu_train {
namespace {

constexpr const char* kExport = "export_onnx";

void check_options(const OnnxOptions& options) {
  check(options.opset >= onnx::kFirstOpset && options.opset <= onnx::kLastOpset, ErrorKind::Usage, kExport, "opset ", options.opset,
        "; allowed: ", onnx::kFirstOpset, " to ", onnx::kLastOpset, "; hint: 17 for onnxruntime, 15 for ATC of CANN 8.0");
  check(options.dtype == at::kFloat || options.dtype == at::kHalf, ErrorKind::Usage, kExport, "dtype ", c10::toString(options.dtype),
        "; allowed: float32, float16");
}

void check_weights(const ParameterSet& parameters) {
  for (const auto& p : parameters)
    check(p.value.scalar_type() == at::kFloat, ErrorKind::Usage, kExport, "the parameter '", p.name, "' is ",
          c10::toString(p.value.scalar_type()), "; a model is exported from fp32 weights",
          "; hint: model.module->to(torch::kFloat); for a file in fp16 set OnnxOptions::dtype");
}

std::vector<OnnxValue> described(const std::vector<onnx::Value>& values) {
  std::vector<OnnxValue> out;
  for (const auto& value : values) {
    auto& made = out.emplace_back(OnnxValue{.name = value.name, .dtype = value.type, .shape = {}});
    for (const auto& dim : value.dims) made.shape.push_back(dim.name.empty() ? Extent(dim.size) : Extent(dim.name));
  }
  return out;
}

OnnxExport export_subject(const onnx::Subject& subject, const Batch& example, const std::filesystem::path& to, const OnnxOptions& options) {
  check_weights(subject.parameters);
  const auto known = [&](const c10::OperatorHandle& op) {
    const auto& name = op.schema().name();
    return onnx::find_row(detail::GraphOp{.op = op, .args = {}, .outputs = {}, .reads = {}, .gives = {}, .layer = {}}.name(),
                          options.opset) != nullptr &&
           name.starts_with("aten::");
  };
  const onnx::Records records(subject, example, options.dynamic, known);
  onnx::Lowering lowering(records, options.opset);
  auto model = lowering.run();
  model.metadata = options.metadata;
  model.metadata.emplace_back("npu_train.version", NPU_TRAIN_VERSION);
  if (options.dtype == at::kHalf) model = onnx::in_half_precision(model);
  const auto written = onnx::write_onnx(to, model, options.external_above);
  OnnxExport out{.bytes = written.bytes,
                 .data = written.data,
                 .data_bytes = written.data_bytes,
                 .inputs = described(model.inputs),
                 .outputs = described(model.outputs),
                 .operators = {},
                 .recorded = {},
                 .warnings = lowering.warnings()};
  for (const auto& node : model.nodes) ++out.operators[node.op];
  for (const auto& op : records.graph().ops()) {
    const auto& schema = op.op.schema();
    ++out.recorded[schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name()];
  }
  return out;
}

}  // namespace

OnnxExport export_onnx(const Model& model, const Batch& example, const std::filesystem::path& to, const OnnxOptions& options) {
  return translated(kExport, [&] {
    check_options(options);
    check(model.module != nullptr && model.forward, ErrorKind::Usage, kExport, "the model '", model.name, "' has no module or no forward");
    const EvaluationMode evaluation(*model.module);
    onnx::Subject subject{.forward = [&](const Batch& batch) { return model.forward(batch); },
                          .parameters = parameters_of(*model.module),
                          .buffers = buffers_of(*model.module),
                          .inputs = model.inputs};
    return export_subject(subject, example, to, options);
  });
}

OnnxExport export_onnx(Task& task, const Batch& example, const std::filesystem::path& to, const OnnxOptions& options) {
  if (const auto* of_model = dynamic_cast<ModelTask*>(&task)) return export_onnx(of_model->model(), example, to, options);
  return translated(kExport, [&] {
    check_options(options);
    task.set_training(false);
    onnx::Subject subject{.forward = [&](const Batch& batch) { return task.forward(batch); },
                          .parameters = task.parameters(),
                          .buffers = task.buffers(),
                          .inputs = {}};
    return export_subject(subject, example, to, options);
  });
}

namespace {

double difference_of(const at::Tensor& expected, const at::Tensor& given) {
  const auto infinite = std::numeric_limits<double>::infinity();
  if (!expected.sizes().equals(given.sizes())) return infinite;
  if (expected.numel() == 0) return 0;
  const at::Tensor a = expected.to(at::kCPU, at::kDouble), b = given.to(at::kDouble);
  const auto largest = a.abs().max().item<double>(), apart = (a - b).abs().max().item<double>();
  if (apart == 0) return 0;
  return std::isnan(apart) || largest == 0 ? infinite : apart / largest;
}

}  // namespace

FileComparison onnx::compared(const std::string& by, const Outputs& expected, const Outputs& given, double tolerance) {
  FileComparison out{.by = by, .difference = 0, .tolerance = tolerance};
  for (const auto& [name, value] : expected.fields()) out.difference = std::max(out.difference, difference_of(value, given.at(name)));
  return out;
}

FileComparison check_onnx(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance) {
  return translated("check_onnx", [&] {
    const EvaluationMode evaluation(*model.module);
    const at::NoGradGuard no_grad;
    const auto expected = model.forward(inputs.map([](const at::Tensor& t) { return t.clone(); }));
    const auto results = onnx::run_onnxruntime({{.file = file, .inputs = inputs}});
    const auto& theirs = results.files.at(0);
    check(theirs.error.empty(), ErrorKind::Data, "check_onnx", "onnxruntime cannot run ", file.string(), ": ", theirs.error);
    return onnx::compared("onnxruntime " + results.version, expected, theirs.outputs, tolerance);
  });
}

}  // namespace npu_train
