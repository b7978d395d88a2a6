#include "train/optimizer_parts.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/dist/offload.hpp"
#include "npu_train/train/divided_parameters.hpp"

namespace npu_train::detail {

LoopParts with_optimizers(LoopParts parts) {
  if (parts.optimizers.empty())
    parts.optimizers.push_back(
        {.precision = parts.precision, .optimizer = parts.optimizer, .strategy = parts.strategy, .base_lr = parts.base_lr});
  const auto& first = parts.optimizers.front();
  parts.precision = first.precision;
  parts.optimizer = first.optimizer;
  parts.strategy = first.strategy;
  parts.base_lr = first.base_lr;
  return parts;
}

ParameterSet all_updated(const LoopParts& parts) {
  ParameterSet out;
  for (const auto& one : parts.optimizers)
    for (const auto& p : on_device(*one.strategy, one.optimizer->parameters())) out.add(p);
  return out;
}

const OptimizerParts& averaged_optimizer(const LoopParts& parts) {
  if (parts.average == nullptr) return parts.optimizers.front();
  std::vector<std::string> names;
  for (const auto& one : parts.optimizers) names.push_back(one.name);
  return parts.optimizers[place_of_averaged(parts.average->options().of, names)];
}

std::string part_of(const char* part, const OptimizerParts& of) { return of.name.empty() ? part : std::string(part) + "." + of.name; }

size_t place_of_averaged(const std::string& of, const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), of);
  check(found != names.end(), ErrorKind::Usage, "average.of", "'", of,
        "' is not an optimizer of this task; allowed: ", names.front().empty() ? "to leave it out, since there is only one" : join(names));
  return static_cast<size_t>(found - names.begin());
}

void check_complete_states(Strategy& strategy) {
  check(!strategy.writes_parts(), ErrorKind::Usage, "trainer.strategy",
        "a task of several optimizers needs complete states on each rank; allowed with it: ddp, single, and dist.compression=none");
}

std::vector<std::pair<std::string, ParameterSet>> divided_parameters(const AlternatingTask& task, const ParameterSet& all) {
  constexpr const char* kWhere = "AlternatingTask";
  const auto names = task.optimizers();
  check(!names.empty(), ErrorKind::Usage, kWhere, "optimizers() returns no name");
  std::vector<std::pair<std::string, ParameterSet>> out;
  for (const auto& name : names) {
    const bool plain =
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string::npos && !name.empty();
    check(plain && std::count(names.begin(), names.end(), name) == 1, ErrorKind::Usage, kWhere, "optimizers() returns '", name,
          "'; allowed: names of letters, digits and '_', each once");
    const auto every = task.every(name);
    check(every >= 1 && (every == 1 || !out.empty()), ErrorKind::Usage, kWhere, "every(\"", name, "\") is ", every,
          "; allowed: ", out.empty() ? "1, since the first optimizer steps in every window" : "at least 1");
    out.emplace_back(name, all.filter([&](const Parameter& p) { return p.name.starts_with(name + "."); }));
    check(!out.back().second.empty(), ErrorKind::Usage, kWhere, "no parameter begins with '", name, ".', so the optimizer ", name,
          " has nothing to update");
  }
  for (const auto& p : all) {
    const bool has = std::any_of(out.begin(), out.end(), [&](const auto& own) { return own.second.find(p.name) != nullptr; });
    check(has || !p.value.requires_grad(), ErrorKind::Usage, kWhere, "no optimizer updates ", p.name, "; allowed: names that begin with ",
          join(names, ".*, "), ".*; hint: set_requires_grad(false)");
  }
  return out;
}

}  // namespace npu_train::detail
