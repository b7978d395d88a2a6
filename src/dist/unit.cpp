#include "npu_train/dist/unit.hpp"

#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {

struct Unit::Impl {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  UnitForward forward;
  Runner runner{};
};

Unit::Unit(std::string name, std::shared_ptr<torch::nn::Module> module, UnitForward forward) {
  check(module != nullptr && forward != nullptr, ErrorKind::Usage, "Unit", name, " has no ", module == nullptr ? "module" : "function");
  impl_ = std::make_shared<Impl>(Impl{std::move(name), std::move(module), std::move(forward)});
}

at::Tensor Unit::operator()(const at::Tensor& x) const { return impl_->runner ? impl_->runner(impl_->forward, x) : impl_->forward(x); }

const std::string& Unit::name() const { return impl_->name; }

void Unit::set_runner(Runner runner) const { impl_->runner = std::move(runner); }

ParameterUnit Unit::of(const ParameterSet& parameters) const {
  ParameterUnit out{.name = name()};
  const auto own = impl_->module->parameters();
  for (const auto& p : parameters)
    if (std::any_of(own.begin(), own.end(), [&](const at::Tensor& t) { return t.is_same(p.value); })) out.parameters.push_back(p.name);
  return out;
}

std::vector<ParameterUnit> parameter_units(const std::vector<Unit>& units, const ParameterSet& parameters) {
  std::vector<ParameterUnit> out;
  std::map<std::string, int> uses;
  for (const auto& entry : parameters.aliases()) ++uses[entry.second];
  for (const auto& unit : units) {
    out.push_back(unit.of(parameters));
    for (const auto& name : out.back().parameters) ++uses[name];
  }
  for (auto& unit : out) std::erase_if(unit.parameters, [&](const std::string& name) { return uses[name] > 1; });
  return out;
}

}  // namespace npu_train
