#include "npu_train/precision/autocast.hpp"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <string_view>

#include "npu_train/core/error.hpp"
#include "precision/emulation_state.hpp"
#include "precision/hooks.hpp"

namespace npu_train {
namespace ac = at::autocast;

Autocast::Autocast(const Device& device, at::ScalarType dtype, bool enabled, bool cache_enabled, CpuLowPrecision cpu_low_precision,
                   const Fp32Ops& fp32_ops)
    : type_(device.c10().type()),
      enabled_before_(ac::is_autocast_enabled(type_)),
      dtype_before_(ac::get_autocast_dtype(type_)),
      cache_before_(ac::is_autocast_cache_enabled()),
      emulated_before_(emulated_dtype()) {
  check(dtype == at::kHalf || dtype == at::kBFloat16, ErrorKind::Usage, "Autocast", "dtype is ", dtype,
        "; it must be fp16 (Half) or bf16 (BFloat16); for fp32 pass enabled=false");
  if (device.is_cpu()) detail::exchange_emulated(enabled && emulates(cpu_low_precision, dtype) ? std::optional(dtype) : std::nullopt);
  fp32_ops_before_ = detail::exchange_fp32_ops(type_, enabled ? fp32_ops : Fp32Ops());
  ac::set_autocast_enabled(type_, enabled);
  ac::set_autocast_dtype(type_, dtype);
  ac::set_autocast_cache_enabled(cache_enabled);
  ac::increment_nesting();  // without nesting, the cache would outlive the region and hide changed weights
}

Autocast::~Autocast() {
  if (ac::decrement_nesting() == 0) ac::clear_cache();
  ac::set_autocast_enabled(type_, enabled_before_);
  ac::set_autocast_dtype(type_, dtype_before_);
  ac::set_autocast_cache_enabled(cache_before_);
  detail::exchange_emulated(emulated_before_);
  detail::exchange_fp32_ops(type_, fp32_ops_before_);
}

AutocastState::AutocastState() : cache_(ac::is_autocast_cache_enabled()), emulated_(emulated_dtype()) {
  for (size_t i = 0; i < kTypes.size(); ++i)
    types_[i] = {ac::is_autocast_enabled(kTypes[i]), ac::get_autocast_dtype(kTypes[i]), detail::current_fp32_ops(kTypes[i])};
}

void AutocastState::enter() const {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    ac::set_autocast_enabled(kTypes[i], types_[i].enabled);
    ac::set_autocast_dtype(kTypes[i], types_[i].dtype);
    detail::exchange_fp32_ops(kTypes[i], types_[i].fp32_ops);
  }
  ac::set_autocast_cache_enabled(cache_);
  detail::exchange_emulated(emulated_);
}

AutocastState::Scope::Scope(const AutocastState& state) {
  state.enter();
  ac::increment_nesting();
}

AutocastState::Scope::~Scope() {
  if (ac::decrement_nesting() == 0) ac::clear_cache();
  before_.enter();
}

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
