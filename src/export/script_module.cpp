#include "export/script_module.hpp"

#include <cctype>
#include <string>

namespace npu_train::script {
namespace {

// Returns "BatchNorm2d" for torch::nn::BatchNorm2dImpl: the class name known to Python tools and ours.
std::string class_name(const torch::nn::Module& module) {
  auto name = module.name();
  if (const auto end = name.find('<'); end != std::string::npos) name.resize(end);
  if (const auto begin = name.rfind("::"); begin != std::string::npos) name = name.substr(begin + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  for (auto& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0 ? "Module" : name;
}

}  // namespace

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

}  // namespace npu_train::script
