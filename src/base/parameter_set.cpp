#include "npu_train/base/parameter_set.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "npu_train/core/error.hpp"

namespace npu_train {

std::string layer_of(const std::string& parameter) {
  const auto dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

namespace {

// Returns the range as a 1-D leaf, which autograd does not treat as a view.
at::Tensor in_memory(const at::Tensor& tensor, int64_t begin, int64_t numel) {
  const at::AutoDispatchBelowADInplaceOrView no_view;
  return tensor.detach().as_strided({numel}, {1}, tensor.storage_offset() + begin);
}

}  // namespace

bool Parameter::is_same_part(const Parameter& other) const {
  return is_slice() == other.is_slice() && begin == other.begin && value.sizes() == other.value.sizes() &&
         whole().sizes() == other.whole().sizes();
}

at::Tensor Parameter::part_of(const at::Tensor& of_whole) const {
  if (!is_slice()) return of_whole;
  const bool same_order = of_whole.strides() == sliced_from.strides();
  const auto laid_out =
      same_order ? of_whole : at::empty_like(sliced_from.detach(), of_whole.options().requires_grad(false)).copy_(of_whole.detach());
  return in_memory(laid_out, begin, value.numel());
}

Parameter Parameter::slice(int64_t first, int64_t numel) const {
  check(!is_slice() && value.is_non_overlapping_and_dense() && first >= 0 && numel >= 0 && first + numel <= value.numel(), ErrorKind::Usage,
        "Parameter", "the slice of ", numel, " elements at ", first, " of ", name, " ", value.sizes(), " of strides ", value.strides(),
        "; allowed: slices of complete parameters that are dense in memory");
  return {.name = name,
          .value = in_memory(value, first, numel).set_requires_grad(value.requires_grad()),
          .group = group,
          .sliced_from = value,
          .begin = first};
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

void ParameterSet::add_aliases_of(const ParameterSet& other) {
  for (const auto& [alias, name] : other.aliases_)
    if (const auto* of = find(name); of != nullptr) add({.name = alias, .value = of->value});
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
  for (const auto& parameter : parameters_) sum += parameter.whole().numel();
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
  out.add_aliases_of(*this);
  return out;
}

}  // namespace npu_train
