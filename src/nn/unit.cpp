#include "npu_train/nn/unit.hpp"

#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train {

struct Unit::Impl {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  Function forward;
  Runner runner{};
};

Unit::Unit(std::string name, std::shared_ptr<torch::nn::Module> module, Function forward) {
  check(module != nullptr && forward != nullptr, ErrorKind::Usage, "Unit", name, " has no ", module == nullptr ? "module" : "function");
  impl_ = std::make_shared<Impl>(Impl{std::move(name), std::move(module), std::move(forward)});
}

at::Tensor Unit::operator()(const at::Tensor& x) const { return impl_->runner ? impl_->runner(impl_->forward, x) : impl_->forward(x); }

const std::string& Unit::name() const { return impl_->name; }

void Unit::set_runner(Runner runner) const { impl_->runner = std::move(runner); }

std::vector<std::string> Unit::names_in(const ParameterSet& parameters) const {
  std::vector<std::string> out;
  const auto own = impl_->module->parameters();
  for (const auto& p : parameters)
    if (std::any_of(own.begin(), own.end(), [&](const at::Tensor& t) { return t.is_same(p.value); })) out.push_back(p.name);
  return out;
}

}  // namespace npu_train
