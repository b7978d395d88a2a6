#include "npu_train/export/torchscript.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>

#include "export/compare.hpp"
#include "export/records.hpp"
#include "export/script_graph.hpp"
#include "npu_train/core/c_locale.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/nn/module_state.hpp"

namespace npu_train::script {
namespace {

// Makes a TorchScript module that has the submodules, parameters and buffers of a module, but no methods.
class ModuleMirror {
 public:
  // Copies the module. A tensor or module that is registered twice is shared in the copy, too.
  torch::jit::Module copy(const torch::nn::Module& from);

 private:
  at::Tensor copy(const at::Tensor& from);

  std::shared_ptr<torch::jit::CompilationUnit> unit_ = std::make_shared<torch::jit::CompilationUnit>();
  std::unordered_map<const torch::nn::Module*, torch::jit::Module> modules_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
};

// Returns the class name that tools for Python and the tools of this library know: "BatchNorm2d" for torch::nn::BatchNorm2dImpl.
std::string class_name(const torch::nn::Module& module) {
  auto name = module.name();
  if (const auto end = name.find('<'); end != std::string::npos) name.resize(end);
  if (const auto begin = name.rfind("::"); begin != std::string::npos) name = name.substr(begin + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  for (auto& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "Module" : name;
}

at::Tensor ModuleMirror::copy(const at::Tensor& from) {
  auto& made = tensors_[from.unsafeGetTensorImpl()];
  if (!made.defined()) made = from.detach().clone().set_requires_grad(from.requires_grad());
  return made;
}

torch::jit::Module ModuleMirror::copy(const torch::nn::Module& from) {
  if (const auto known = modules_.find(&from); known != modules_.end()) return known->second;
  torch::jit::Module to("__torch__.npu_train." + class_name(from), unit_, /*shouldMangle=*/true);
  to.register_attribute("training", c10::BoolType::get(), false);
  for (const auto& p : from.named_parameters(/*recurse=*/false)) to.register_parameter(p.key(), copy(p.value()), /*is_buffer=*/false);
  for (const auto& b : from.named_buffers(/*recurse=*/false)) to.register_buffer(b.key(), copy(b.value()));
  for (const auto& child : from.named_children()) to.register_module(child.key(), copy(*child.value()));
  modules_.emplace(&from, to);
  return to;
}

}  // namespace
}  // namespace npu_train::script

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
  const PlainStreams scope;  // otherwise a locale could print [1003] as "[1,003]" in the program text, which is a different list
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
