#include "dist/equal_parameters.hpp"

#include <algorithm>
#include <string>

#include "dist/operator_sequence.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

std::string description(const Parameter& p) {
  const auto computed = p.computed.defined() ? str_cat(" computed in ", p.computed.scalar_type()) : std::string();
  return str_cat(p.name, " ", p.value.scalar_type(), " ", p.value.sizes(), " of strides ", p.value.strides(), computed);
}

void check_equal_values(const ParameterSet& parameters, ProcessGroup& group) {
  std::string own;
  for (const auto& p : parameters) {
    const auto content = digest(p.value);
    own.append(reinterpret_cast<const char*>(&content), sizeof content);
  }
  const auto all = group.gather("weights", own);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto byte = static_cast<size_t>(std::mismatch(all[0].begin(), all[0].end(), all[r].begin()).first - all[0].begin());
    throw Error(ErrorKind::Peer, "GradientReducer",
                str_cat("the values of ", parameters[byte / sizeof(uint64_t)].name, " on rank ", r, " differ from those on rank 0"),
                "the ranks begin with different weights: seed all of them alike, load the same file, or send them with "
                "ProcessGroup::broadcast() before, as DistributedTraining does");
  }
}

}  // namespace

void check_equal_options(ProcessGroup& group, const DistOptions& resolved, Sharding sharding) {
  std::string own = str_cat("sharding=", kStrategyNames.at(static_cast<size_t>(sharding)), "\n");
  const auto node = to_node(resolved);
  for (const auto& member : node.members())
    if (member.value.is_scalar()) own += "dist." + member.key + "=" + member.value.scalar() + "\n";
  const auto all = group.gather("options", own);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto found = first_difference(all[0], all[r]);
    throw Error(ErrorKind::Usage, "GradientReducer", str_cat("rank ", r, " has ", found.b, " where rank 0 has ", found.a),
                "all ranks must run the same program with the same options");
  }
}

void check_equal_parameters(const ParameterSet& parameters, ProcessGroup& group, bool values) {
  std::string own;
  for (const auto& p : parameters) own += description(p) + "\n";
  const auto all = group.gather("parameters", own);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const auto found = first_difference(all[0], all[r]);
    const auto shown = [](const std::string& parameter) { return parameter.empty() ? "no parameter" : parameter; };
    throw Error(
        ErrorKind::Peer, "GradientReducer",
        str_cat("the parameters of rank ", r, " differ from those of rank 0: '", shown(found.b), "' instead of '", shown(found.a), "'"),
        "all ranks must run the same program with the same configuration");
  }
  if (values) check_equal_values(parameters, group);
}

}  // namespace npu_train::detail
