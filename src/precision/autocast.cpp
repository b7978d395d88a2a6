#include "npu_train/precision/autocast.hpp"

#include <ATen/autocast_mode.h>

#include "npu_train/core/error.hpp"
#include "npu_train/precision/fp32_region.hpp"

namespace npu_train {
namespace ac = at::autocast;

Autocast::Autocast(const Device& device, at::ScalarType dtype, bool enabled, bool cache_enabled)
    : type_(device.c10().type()),
      enabled_before_(ac::is_autocast_enabled(type_)),
      dtype_before_(ac::get_autocast_dtype(type_)),
      cache_before_(ac::is_autocast_cache_enabled()) {
  check(dtype == at::kHalf || dtype == at::kBFloat16, ErrorKind::Usage, "Autocast", "dtype is ", dtype,
        "; it must be fp16 (Half) or bf16 (BFloat16); for fp32 pass enabled=false");
  ac::set_autocast_enabled(type_, enabled);
  ac::set_autocast_dtype(type_, dtype);
  ac::set_autocast_cache_enabled(cache_enabled);
  ac::increment_nesting();  // without it the cache outlives the region, and a changed weight is not seen
}

Autocast::~Autocast() {
  if (ac::decrement_nesting() == 0) ac::clear_cache();
  ac::set_autocast_enabled(type_, enabled_before_);
  ac::set_autocast_dtype(type_, dtype_before_);
  ac::set_autocast_cache_enabled(cache_before_);
}

at::Tensor Fp32Region::in(const at::Tensor& x) const {
  const auto type = x.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? x.to(at::kFloat) : x;
}

bool in_modules(const std::string& name, const std::vector<std::string>& modules) {
  for (const auto& m : modules)
    if (m.empty() || name == m || (name.starts_with(m) && name[m.size()] == '.')) return true;
  return false;
}

}  // namespace npu_train
