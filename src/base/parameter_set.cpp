#include "npu_train/base/parameter_set.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"

namespace npu_train {

std::string layer_of(const std::string& parameter) {
  const auto dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

ParameterSet::ParameterSet(std::vector<Parameter> parameters) {
  parameters_.reserve(parameters.size());
  for (auto& parameter : parameters) add(std::move(parameter));
}

void ParameterSet::add(Parameter parameter) {
  check(!parameter.name.empty(), ErrorKind::Usage, "ParameterSet", "a parameter has no name; its state is stored by name");
  check(parameter.value.defined(), ErrorKind::Usage, "ParameterSet", "'", parameter.name, "' is an undefined tensor");
  const bool is_alias = std::any_of(aliases_.begin(), aliases_.end(), [&](const auto& a) { return a.first == parameter.name; });
  check(index_.count(parameter.name) == 0 && !is_alias, ErrorKind::Usage, "ParameterSet", "'", parameter.name,
        "' occurs twice; names must be unique");
  const auto [known, is_new] = tensors_.emplace(parameter.value.unsafeGetTensorImpl(), parameters_.size());
  if (!is_new) {
    aliases_.emplace_back(std::move(parameter.name), parameters_[known->second].name);
    return;
  }
  index_.emplace(parameter.name, parameters_.size());
  parameters_.push_back(std::move(parameter));
}

const Parameter* ParameterSet::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

std::vector<at::Tensor> ParameterSet::values() const {
  std::vector<at::Tensor> out;
  out.reserve(size());
  for (const auto& parameter : parameters_) out.push_back(parameter.value);
  return out;
}

std::vector<at::Tensor> ParameterSet::grads() const {
  std::vector<at::Tensor> out;
  out.reserve(size());
  for (const auto& parameter : parameters_) {
    if (const auto& grad = parameter.value.grad(); grad.defined()) out.push_back(grad);
  }
  return out;
}

int64_t ParameterSet::numel() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters_) sum += parameter.value.numel();
  return sum;
}

void ParameterSet::zero_grad(bool set_to_none) const {
  for (const auto& parameter : parameters_) {
    auto& grad = parameter.value.mutable_grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      grad.reset();
    } else {
      grad.detach_();
      grad.zero_();
    }
  }
}

ParameterSet ParameterSet::filter(const std::function<bool(const Parameter&)>& keep) const {
  ParameterSet out;
  for (const auto& parameter : parameters_) {
    if (keep(parameter)) out.add(parameter);
  }
  for (const auto& [alias, name] : aliases_)
    if (out.index_.count(name) != 0) out.aliases_.emplace_back(alias, name);
  return out;
}

}  // namespace npu_train
