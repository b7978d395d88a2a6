#include "engine/unit_model.hpp"

#include <set>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "npu_train/core/log.hpp"
#include "npu_train/nn/named_state.hpp"

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
  if (!strategy->shards_parameters()) return model;
  if (model.blocks.empty()) {
    log_info("trainer.strategy=zero3: ", model.name, " declares no blocks, so all parameters are complete during a step");
    return model;
  }
  auto units = units_of(model);
  size_t index = 0;
  for (auto& block : model.blocks) {
    const auto unit = index++;
    if (units[unit].parameters.empty()) continue;
    block.forward = [strategy, unit, forward = std::move(block.forward)](const at::Tensor& x) {
      return strategy->run_unit(unit, forward, x);
    };
  }
  strategy->set_units(std::move(units));
  return chain_blocks(std::move(model));
}

}  // namespace npu_train
