#include "dist/equal_parameters.hpp"

#include <string>

#include "dist/operator_sequence.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

std::string description(const Parameter& p) {
  const auto computed = p.computed.defined() ? str_cat(" computed in ", p.computed.scalar_type()) : std::string();
  return str_cat(p.name, " ", p.value.scalar_type(), " ", p.value.sizes(), " of strides ", p.value.strides(), computed);
}

}  // namespace

void check_equal_parameters(const ParameterSet& parameters, ProcessGroup& group, const DistOptions& options) {
  std::string own;
  if (options.compression != "none")
    own = str_cat("dist.compression ", options.compression, ", dist.compression_start ", options.compression_start, "\n");
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
}

}  // namespace npu_train::detail
