/// Parts of a network whose parameters ranks bring together where they hold them in shards (trainer.strategy=zero3): what blocks are for a
/// configured model.
///
///   struct MyNetImpl : torch::nn::Module {
///     torch::Tensor forward(torch::Tensor x) { return head->forward(second(first(x))); }
///     std::vector<npu_train::Unit> units() const { return {first, second}; }  // npu_train::task() and the others find it
///     npu_train::Unit first{"first", layer1, [this](const torch::Tensor& x) { return layer1->forward(x).relu(); }};
///     ...
///   };
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

/// A module and the computation that needs its parameters. Copies are the same unit.
class Unit {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  /// Brings the parameters of a unit, and calls its function.
  using Runner = std::function<at::Tensor(const Function& forward, const at::Tensor& x)>;

  /// `name`: for messages. Error(Usage) without a module or a function.
  Unit(std::string name, std::shared_ptr<torch::nn::Module> module, Function forward);

  /// forward(x), at most once in a forward pass where parameters are in shards.
  at::Tensor operator()(const at::Tensor& x) const;

  const std::string& name() const;
  /// The names of those of `parameters` that belong to the module.
  std::vector<std::string> names_in(const ParameterSet& parameters) const;
  /// Who runs it from now on; until then, and with nullptr, it runs itself.
  void set_runner(Runner runner) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace npu_train
