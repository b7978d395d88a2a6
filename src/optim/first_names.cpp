#include "optim/first_names.hpp"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <vector>

#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && at::equal(a, b.to(a.device()));
}

}  // namespace

State under_first_names(const State& saved, const State& own, const ParameterSet& parameters, const std::string& where) {
  State out = saved;
  std::vector<std::string> kept;
  for (const auto& [alias, name] : parameters.aliases()) {
    bool differ = false;
    for (const auto& [key, tensor] : saved.tensors) {
      const auto slash = key.find('/');
      if (slash == std::string::npos || key.substr(slash + 1) != alias) continue;
      const auto first = key.substr(0, slash + 1) + name;
      if (own.tensors.count(first) == 0) continue;
      const auto [at, moved] = out.tensors.emplace(first, tensor);
      differ |= !moved && !same(at->second, tensor);
      out.tensors.erase(key);
    }
    if (differ) kept.push_back(name + " (not " + alias + ")");
  }
  if (!kept.empty())
    log_warning(where, ": the saved state has different entries for one tensor under two names; kept are those of ", join(kept));
  return out;
}

}  // namespace npu_train::detail
