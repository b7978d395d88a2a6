#include "npu_train/precision/fp32_region.hpp"

#include <algorithm>
#include <string_view>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

// Matches a pattern in which "*" matches any characters except dots.
bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern[0] != '*') return !path.empty() && path[0] == pattern[0] && matches(pattern.substr(1), path.substr(1));
  for (size_t taken = 0; taken <= path.size(); ++taken) {
    if (matches(pattern.substr(1), path.substr(taken))) return true;
    if (taken < path.size() && path[taken] == '.') return false;
  }
  return false;
}

// Length of the longest path from `name` upwards that matches one of `modules`; -1 if none does.
int64_t named_at(const std::string& name, const std::vector<std::string>& modules) {
  const auto is_named = [&](std::string_view path) {
    return std::any_of(modules.begin(), modules.end(), [&](const std::string& m) { return matches(m, path); });
  };
  for (size_t length = name.size(); length > 0;) {
    if (is_named(std::string_view(name).substr(0, length))) return static_cast<int64_t>(length);
    const auto dot = name.rfind('.', length - 1);
    length = dot == std::string::npos ? 0 : dot;
  }
  return is_named("") ? 0 : -1;
}

}  // namespace

at::Tensor Fp32Region::in(const at::Tensor& x) const {
  const auto type = x.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? x.to(at::kFloat) : x;
}

bool in_modules(const std::string& name, const std::vector<std::string>& modules) { return named_at(name, modules) >= 0; }

bool AmpModules::keeps_fp32(const std::string& name) const { return named_at(name, fp32) > named_at(name, low); }

bool AmpModules::casts(const std::string& name) const {
  return std::any_of(low.begin(), low.end(), [&](const std::string& entry) { return matches(entry, name); });
}

void AmpModules::check() const {
  for (const auto& entry : low)
    npu_train::check(std::find(fp32.begin(), fp32.end(), entry) == fp32.end(), ErrorKind::Usage, "amp", "'", entry,
                     "' is in fp32_modules and in low_precision_modules; take it out of one of them");
}

}  // namespace npu_train
