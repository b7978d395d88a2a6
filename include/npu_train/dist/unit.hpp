/// Parts of a network of your own that ranks bring together where they hold parameters in shards: what Model::blocks are for a configured
/// one.
///
///   class MyTask : public npu_train::Task {
///     npu_train::Unit layer1_{"layer1", layer1, [this](const at::Tensor& x) { return layer1->forward(x); }};
///     npu_train::StepOutput training_step(const npu_train::Batch& batch) override { auto x = layer1_(batch.input()); ... }
///     std::vector<npu_train::Unit> units() override { return {layer1_, ...}; }
///   };
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/parameter_unit.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

/// A module and the computation that needs its parameters. Copies are the same unit.
class Unit {
 public:
  /// Runs a unit: gives `forward` its parameters, and calls it.
  using Runner = std::function<at::Tensor(const UnitForward& forward, const at::Tensor& x)>;

  /// `name`: for messages. Error(Usage) without a module or a function.
  Unit(std::string name, std::shared_ptr<torch::nn::Module> module, UnitForward forward);

  /// forward(x), at most once in a forward pass where parameters are in shards.
  at::Tensor operator()(const at::Tensor& x) const;

  const std::string& name() const;
  /// Which of `parameters` belong to the module.
  ParameterUnit of(const ParameterSet& parameters) const;
  /// Who runs it from now on; until then, and with nullptr, it runs itself.
  void set_runner(Runner runner) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The parameters of each unit. One that several of them have, or that has several names, belongs to none.
std::vector<ParameterUnit> parameter_units(const std::vector<Unit>& units, const ParameterSet& parameters);

}  // namespace npu_train
