#include "npu_train/precision/autocast.hpp"

#include <ATen/autocast_mode.h>

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

}  // namespace npu_train
