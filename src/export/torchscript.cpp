#include "npu_train/export/torchscript.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "export/compare.hpp"
#include "export/records.hpp"
#include "export/script_graph.hpp"
#include "export/script_module.hpp"
#include "npu_train/core/c_locale.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/nn/evaluation_mode.hpp"
#include "npu_train/nn/named_state.hpp"

namespace npu_train {
namespace {

namespace jit = torch::jit;

constexpr const char *kExportScript = "export_torchscript", *kCheckScript = "check_torchscript";

void check_model(const Model& model) {
  check(model.module != nullptr && model.forward, ErrorKind::Usage, kExportScript, "the model '", model.name,
        "' has no module or no forward");
  for (const auto& p : parameters_of(*model.module))
    check(p.value.is_cpu(), ErrorKind::Usage, kExportScript, "the parameter '", p.name, "' is on ", p.value.device(),
          "; a file is written from the CPU; hint: model.module->to(torch::kCPU)");
}

std::vector<OnnxValue> inputs_of(const onnx::Records& records) {
  std::vector<OnnxValue> out;
  for (size_t i = 0; i < records.inputs().size(); ++i) {
    const auto& spec = records.inputs()[i];
    auto& made = out.emplace_back(OnnxValue{.name = spec.name, .dtype = records.input(i).scalar_type(), .shape = {}});
    for (size_t d = 0; d < spec.shape.size(); ++d) {
      const auto is_it = [&](const onnx::FreeSize& size) { return size.name == spec.shape[d].name; };
      const bool free = std::any_of(records.free().begin(), records.free().end(), is_it);
      made.shape.push_back(free ? Extent(spec.shape[d].name) : Extent(records.input(i).size(static_cast<int64_t>(d))));
    }
  }
  return out;
}

std::vector<OnnxValue> outputs_of(const onnx::Records& records) {
  std::vector<OnnxValue> out;
  const auto& results = records.graph().results();
  for (size_t k = 0; k < results.size(); ++k) {
    auto& made = out.emplace_back(OnnxValue{.name = results[k].name, .dtype = results[k].tensor.scalar_type(), .shape = {}});
    for (int64_t d = 0; d < results[k].tensor.dim(); ++d) {
      onnx::Ints by_record;
      for (size_t r = 0; r < records.count(); ++r) by_record.push_back(records.graph(r).results()[k].tensor.size(d));
      const auto size = records.size_of(by_record);
      const bool fixed = size && size->fixed(), same = size && size->factor == 1 && size->free.size() == 1;
      made.shape.push_back(fixed ? Extent(size->factor)
                                 : Extent(same ? records.free()[size->free[0]].name : str_cat(results[k].name, "_", d)));
    }
  }
  return out;
}

std::string bytes_of(const jit::Module& module, const TorchScriptExportOptions& options) {
  jit::ExtraFilesMap entries{{"npu_train.version", NPU_TRAIN_VERSION}};
  for (const auto& [key, value] : options.metadata) entries[key] = value;
  const PlainStreams scope;  // a locale could print [1003] as "[1,003]" in the program text, which is a different list
  std::ostringstream out;
  module.save(out, entries);
  return out.str();
}

}  // namespace

TorchScriptExport export_torchscript(const Model& model, const Batch& example, const std::filesystem::path& to,
                                     const TorchScriptExportOptions& options) {
  return translated(kExportScript, [&] {
    check_model(model);
    const EvaluationMode evaluation(*model.module);
    const onnx::Subject subject{.forward = [&](const Batch& batch) { return model.forward(batch); },
                                .parameters = parameters_of(*model.module),
                                .buffers = buffers_of(*model.module),
                                .inputs = model.inputs,
                                .where = kExportScript};
    const onnx::Records records(subject, example, options.dynamic, [](const c10::OperatorHandle&) { return true; });
    auto module = script::ModuleMirror().copy(*model.module);
    script::GraphBuilder builder(records, module.type());
    auto* forward =
        module._ivalue()->compilation_unit()->create_function(c10::QualifiedName(*module.type()->name(), "forward"), builder.build());
    module.type()->addMethod(forward);
    TorchScriptExport out{.bytes = write_file_atomic(to, bytes_of(module, options)).bytes,
                          .inputs = inputs_of(records),
                          .outputs = outputs_of(records),
                          .operators = {},
                          .warnings = builder.warnings()};
    for (const auto& op : records.graph().ops()) {
      const auto& schema = op.op.schema();
      ++out.operators[schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name()];
    }
    return out;
  });
}

FileComparison check_torchscript(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance) {
  return translated(kCheckScript, [&] {
    const EvaluationMode evaluation(*model.module);
    const at::NoGradGuard no_grad;
    const auto copied = [&] { return inputs.map([](const at::Tensor& t) { return t.clone(); }); };
    const auto expected = model.forward(copied());
    std::vector<c10::IValue> given;
    const auto batch = copied();
    if (model.inputs.empty())
      for (const auto& field : batch.fields()) given.emplace_back(field.second);
    for (const auto& spec : model.inputs) given.emplace_back(batch.at(spec.name));
    c10::IValue returned;
    try {
      returned = jit::load(file.string(), at::kCPU).forward(given);
    } catch (const std::exception& e) {
      throw Error(ErrorKind::Data, kCheckScript, file.string() + ": cannot be loaded and run: " + e.what(), "", std::current_exception());
    }
    std::vector<Outputs::Field> found;
    for (size_t k = 0; k < expected.fields().size(); ++k)
      found.emplace_back(expected.fields()[k].first,
                         returned.isTuple() ? returned.toTupleRef().elements()[k].toTensor() : returned.toTensor());
    return onnx::compared("libtorch", expected, Outputs(std::move(found)), tolerance);
  });
}

}  // namespace npu_train
