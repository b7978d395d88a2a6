#include "npu_train/models/torchscript.hpp"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/normalization.h>
#include <torch/script.h>

#include <filesystem>
#include <sstream>

#include "npu_train/core/c_locale.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

namespace jit = torch::jit;
namespace nn = torch::nn;

constexpr const char* kWhere = "model torchscript";

// Returns the Python class of a module: "BatchNorm2d".
std::string class_of(const jit::Module& module) { return module.type()->name() ? module.type()->name()->name() : "ScriptModule"; }

struct ScriptGroup : nn::Module {
  using nn::Module::Module;
};

// Moves the values of the script's tensors into the tensors of `to`, and makes the script use these tensors. Returns false if the names
// differ.
bool share_tensors(nn::Module& to, jit::Module& script) {
  const auto parameters = to.named_parameters(false), buffers = to.named_buffers(false);
  for (const auto& p : script.named_parameters(false))
    if (parameters.find(p.name) == nullptr) return false;
  for (const auto& b : script.named_buffers(false))
    if (buffers.find(b.name) == nullptr) return false;
  const auto share = [&](at::Tensor own, const std::string& name, const at::Tensor& value) {
    own.set_data(value.detach());
    own.set_requires_grad(value.requires_grad());
    script.setattr(name, own);
  };
  for (const auto& p : script.named_parameters(false)) share(parameters[p.name], p.name, p.value);
  for (const auto& b : script.named_buffers(false)) share(buffers[b.name], b.name, b.value);
  return true;
}

// Returns a libtorch normalisation layer that shares the script's tensors; nullptr for other modules. Precision recognises such a layer by
// its class and keeps it in fp32 in bf16-true.
std::shared_ptr<nn::Module> norm_for(jit::Module& script) {
  const auto type = class_of(script);
  at::Tensor scale;
  for (const auto& p : script.named_parameters(false))
    if (p.name == "weight") scale = p.value;
  if (!scale.defined() || scale.dim() == 0) return nullptr;
  std::shared_ptr<nn::Module> out;
  if (type == "BatchNorm1d") out = std::make_shared<nn::BatchNorm1dImpl>(scale.size(0));
  if (type == "BatchNorm2d") out = std::make_shared<nn::BatchNorm2dImpl>(scale.size(0));
  if (type == "BatchNorm3d") out = std::make_shared<nn::BatchNorm3dImpl>(scale.size(0));
  if (type == "LayerNorm") out = std::make_shared<nn::LayerNormImpl>(nn::LayerNormOptions(scale.sizes().vec()));
  if (type == "GroupNorm") out = std::make_shared<nn::GroupNormImpl>(nn::GroupNormOptions(1, scale.size(0)));
  return out != nullptr && share_tensors(*out, script) ? out : nullptr;
}

// A module that shares the parameters and buffers of a script, under the same names.
class ScriptedModule : public nn::Module {
 public:
  explicit ScriptedModule(jit::Module script_module) : nn::Module("TorchScript"), script(std::move(script_module)) {
    mirror(*this, script);
  }

  void train(bool on = true) override {
    nn::Module::train(on);
    script.train(on);
  }

  at::Tensor forward(const at::Tensor& x, int64_t classes) {
    // Turns off the optimising executor, which rewrites the graph after a few batches. That changes the last bits, so a resumed run would
    // differ.
    const jit::GraphOptimizerEnabledGuard as_written(false);
    const auto out = script.forward({x});
    check(out.isTensor(), ErrorKind::Usage, kWhere, "the module returns ", out.tagKind(), "; it must return one tensor of logits");
    const auto logits = out.toTensor();
    check(logits.dim() == 2 && logits.size(1) == classes, ErrorKind::Usage, kWhere, "the module returns logits of shape ", logits.sizes(),
          "; allowed: [N, ", classes, "]; hint: set model.num_classes");
    return logits;
  }

  jit::Module script;

 private:
  static void mirror(nn::Module& to, jit::Module& from) {
    for (const auto& p : from.named_parameters(false)) to.register_parameter(p.name, p.value, p.value.requires_grad());
    for (const auto& b : from.named_buffers(false)) to.register_buffer(b.name, b.value);
    for (const auto& child : from.named_children()) {
      auto module = child.value;
      if (auto norm = norm_for(module)) {
        to.register_module(child.name, std::move(norm));
      } else {
        const auto group = to.register_module(child.name, std::make_shared<ScriptGroup>(class_of(module)));
        mirror(*group, module);
      }
    }
  }
};

jit::Module load_script(const TorchScriptOptions& o) {
  check(!o.path.empty(), ErrorKind::Usage, "model.path", "no file is named; hint: set it to a file of torch.jit.save");
  check(o.allow_code, ErrorKind::Usage, "model.allow_code", o.path,
        " is a TorchScript module: it contains code, which runs with all your rights; allowed: only if allowed explicitly, also for a "
        "checkpoint "
        "of such a model; hint: if you trust its source, set model.allow_code=true");
  check(std::filesystem::is_regular_file(o.path), ErrorKind::Usage, "model.path", o.path, ": there is no such file");
  try {
    return jit::load(o.path, at::kCPU);
  } catch (const std::exception&) {
    throw Error(ErrorKind::Usage, "model.path", o.path + ": not a TorchScript module",
                "save it with torch.jit.save(torch.jit.script(net), path)", std::current_exception());
  }
}

}  // namespace

const ConfigTable<TorchScriptOptions>& TorchScriptOptions::config_table() {
  using T = TorchScriptOptions;
  static const auto table =
      ConfigTable<T>("model torchscript")
          .field("path", &T::path, "file of torch.jit.save")
          .field("allow_code", &T::allow_code,
                 "true: the code in the file may run; only for files that you trust; not taken from a checkpoint")
          .field("num_classes", &T::num_classes, "outputs of the module", between(1, 1 << 24))
          .field("image_size", &T::image_size, "pixels of a side, for summaries, predictions and benchmarks", between(1, 1 << 14))
          .field("channels", &T::channels, "channels of the input", between(1, 4096))
          .field("weights", &T::weights, "file with initial weights; '': those of the module")
          .field("weights_strict", &T::weights_strict,
                 "true: weights of another network are an error; false: the matching tensors are loaded");
  return table;
}

Model torchscript(const TorchScriptOptions& options) {
  const auto net = std::make_shared<ScriptedModule>(load_script(options));
  check(!net->parameters().empty(), ErrorKind::Usage, "model.path", options.path,
        ": the module has no parameters; hint: save it before torch.jit.freeze and torch.jit.optimize_for_inference");
  net->train(true);
  return {.name = "torchscript",
          .module = net,
          .forward = [net, classes = options.num_classes](const at::Tensor& x) { return net->forward(x, classes); },
          .inputs = {image_input(options.channels, options.image_size)},
          .num_classes = options.num_classes,
          .weights = options.weights,
          .weights_strict = options.weights_strict};
}

std::string torchscript_bytes(const Model& model) {
  auto* net = model.module ? model.module->as<ScriptedModule>() : nullptr;
  check(net != nullptr, ErrorKind::Usage, "torchscript_bytes", "the model '", model.name, "' is not a TorchScript module");
  return translated("torchscript_bytes", [&] {
    auto copy = net->script.deepcopy();
    copy.to(at::kCPU);
    copy.eval();
    const PlainStreams scope;  // otherwise the program text could contain "[1,003]", which is a different list than [1003]
    std::ostringstream out;
    copy.save(out);
    return out.str();
  });
}

}  // namespace npu_train
