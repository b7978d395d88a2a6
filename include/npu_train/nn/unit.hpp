/// ZeRO-3 units (trainer.strategy=zero3): modules whose sharded parameters are gathered together before use. Units are for networks defined
/// in code; models from a configuration use their blocks instead.
///
///   struct MyNetImpl : torch::nn::Module {
///     torch::Tensor forward(torch::Tensor x) { return head->forward(second(first(x))); }
///     std::vector<npu_train::Unit> units() const { return {first, second}; }  // npu_train::task() and similar functions find it
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

/// A module and the computation that uses its parameters. Copies refer to the same unit.
class Unit {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  /// Gathers the parameters of a unit and calls its function.
  using Runner = std::function<at::Tensor(const Function& forward, const at::Tensor& x)>;

  /// `name` is used in messages. Error(Usage) without a module or a function.
  Unit(std::string name, std::shared_ptr<torch::nn::Module> module, Function forward);

  /// Returns forward(x). With sharded parameters, call it at most once per forward pass.
  at::Tensor operator()(const at::Tensor& x) const;

  const std::string& name() const;
  /// Returns the names of those `parameters` that belong to the module.
  std::vector<std::string> names_in(const ParameterSet& parameters) const;
  /// Sets the runner of later calls; nullptr (the default) calls the function directly.
  void set_runner(Runner runner) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace npu_train
