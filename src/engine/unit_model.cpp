#include "engine/unit_model.hpp"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/precision/masters.hpp"

namespace npu_train {
namespace {

std::vector<ParameterUnit> units_of(const Model& model) {
  const auto parameters = parameters_of(*model.module);
  const auto is_in = [](const std::string& name, const Block& block) { return name.starts_with(block.name + "."); };
  std::set<std::string> shared;
  for (const auto& [alias, name] : parameters.aliases())
    for (const auto& block : model.blocks)
      if (is_in(alias, block) != is_in(name, block)) shared.insert(name);
  std::vector<ParameterUnit> out;
  for (const auto& block : model.blocks) {
    ParameterUnit unit{.name = block.name};
    for (const auto& p : parameters)
      if (is_in(p.name, block) && !shared.contains(p.name)) unit.parameters.push_back(p.name);
    out.push_back(std::move(unit));
  }
  return out;
}

}  // namespace

Model in_units(Model model, const std::shared_ptr<Strategy>& strategy) {
  if (strategy->units() == nullptr) return model;
  if (model.blocks.empty()) return model;
  auto units = units_of(model);
  size_t index = 0;
  for (auto& block : model.blocks) {
    const auto unit = index++;
    if (units[unit].parameters.empty()) continue;
    block.forward = [strategy, unit, forward = std::move(block.forward)](const ForwardContext& context, const at::Tensor& x) {
      return strategy->units()->run(
          unit, [&](const at::Tensor& t) { return forward(context, t); }, x);
    };
  }
  strategy->units()->set(std::move(units));
  return chain_blocks(std::move(model));
}

void connect_units(Task& task, const std::shared_ptr<Strategy>& strategy) {
  const auto units = task.units();
  for (const auto& unit : units) unit.set_runner(nullptr);  // removes the runners of an earlier run
  if (strategy->units() == nullptr) return;
  if (units.empty() && strategy->ranks().is_main())
    log_info("trainer.strategy=zero3: the model declares no blocks and no units, so all parameters are complete during a step");
  const auto parameters = task.parameters();
  std::map<std::string, int> uses;
  for (const auto& entry : parameters.aliases()) ++uses[entry.second];
  std::vector<ParameterUnit> out;
  for (const auto& unit : units) {
    out.push_back({.name = unit.name(), .parameters = unit.names_in(parameters)});
    check(!out.back().parameters.empty(), ErrorKind::Usage, "Unit", unit.name(),
          " has no parameter of the network; hint: register its module in that of the network");
    for (const auto& name : out.back().parameters) ++uses[name];
  }
  for (size_t i = 0; i < out.size(); ++i) {
    std::erase_if(out[i].parameters, [&](const std::string& name) { return uses[name] > 1; });
    if (out[i].parameters.empty()) continue;
    units[i].set_runner([weak = std::weak_ptr(strategy), i](const UnitForward& forward, const at::Tensor& x) {
      const auto alive = weak.lock();
      check(alive != nullptr, ErrorKind::Usage, "Unit", "the Trainer is gone that divided the parameters; hint: a checkpoint has them");
      return alive->units()->run(i, forward, x);
    });
  }
  strategy->units()->set(std::move(out));
}

ParameterSet gathered_in(c10::ScalarType dtype, const std::vector<std::string>& names, const ParameterSet& trained) {
  const std::set<std::string> chosen(names.begin(), names.end());
  ParameterSet out;
  for (const auto& p : trained) out.add(chosen.contains(p.name) ? with_master(p, dtype) : p);
  out.add_aliases_of(trained);
  return out;
}

}  // namespace npu_train
