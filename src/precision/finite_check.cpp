#include "npu_train/precision/finite_check.hpp"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {
namespace {

// Calls fn(backend, device) for each device in `devices`, and each device of `tensors`, whose overflow saturates.
template <class Fn>
void for_saturating(const std::vector<at::Tensor>& tensors, const std::vector<at::Device>& devices, Fn fn) {
  std::vector<at::Device> all;
  const auto add = [&](const at::Device& device) {
    if (std::find(all.begin(), all.end(), device) == all.end()) all.push_back(device);
  };
  for (const auto& t : tensors)
    if (t.defined()) add(t.device());
  for (const auto& device : devices) add(device);
  for (const auto& device : all)
    if (const auto* backend = saturating_backend(device)) fn(*backend, device_of(device));
}

// Returns the tensor that the fused kernel reads: the gradient or, if it is sparse, its values, which may be uncoalesced.
at::Tensor numbers_of(const at::Tensor& g) {
  constexpr const char* kWhere = "unscale_and_check";
  check(g.layout() == at::kStrided || g.layout() == at::kSparse, ErrorKind::Usage, kWhere, "a gradient of shape ", g.sizes(),
        " has the layout ", g.layout(), "; allowed: dense and sparse COO");
  check(!g.is_complex(), ErrorKind::Usage, kWhere, "a gradient of shape ", g.sizes(), " is ", g.scalar_type(),
        "; allowed: real numbers; hint: keep complex parameters as pairs of real ones (view_as_real)");
  if (g.is_sparse()) return g._values();
  check(at::has_internal_overlap(g) != at::MemOverlap::Yes, ErrorKind::Usage, kWhere, "several elements of a gradient of shape ", g.sizes(),
        " share one place in memory; hint: assign an expanded gradient as .contiguous()");
  return g;
}

bool any_overflow_flag(const std::vector<at::Tensor>& tensors, const std::vector<at::Device>& devices) {
  bool set = false;
  for_saturating(tensors, devices, [&](const DeviceBackend& backend, const Device& device) { set |= backend.overflow_flag(device); });
  return set;
}

}  // namespace

void clear_overflow_flags(const std::vector<at::Tensor>& tensors, const std::vector<at::Device>& computed_on) {
  for_saturating(tensors, computed_on, [](const DeviceBackend& backend, const Device& device) { backend.clear_overflow_flag(device); });
}

at::Tensor unscale_and_check(const std::vector<at::Tensor>& given, double inv_scale, const std::vector<at::Device>& computed_on) {
  const c10::NoGradGuard no_grad;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  if (given.empty()) return at::zeros({}, fp32);
  std::vector<at::Tensor> gradients;
  for (const auto& g : given) gradients.push_back(numbers_of(g));

  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> groups;
  const at::Device home = gradients.front().device();
  const bool uniform = [&] {
    for (const auto& g : gradients)
      if (g.device() != home || g.scalar_type() != gradients.front().scalar_type()) return false;
    return true;
  }();
  const double flagged = any_overflow_flag(gradients, computed_on) ? 1 : 0;
  const auto pass = [&](at::TensorList list) {
    const auto options = fp32.device(list.front().device());
    auto found = at::full({}, flagged, options);
    at::_amp_foreach_non_finite_check_and_unscale_(list, found, at::full({}, inv_scale, options));
    return found;
  };
  if (uniform) return pass(gradients);

  for (const auto& g : gradients) groups[{g.device().str(), g.scalar_type()}].push_back(g);
  at::Tensor found = at::zeros({}, fp32.device(home));
  for (const auto& [key, list] : groups) found = at::maximum(found, pass(list).to(home, /*non_blocking=*/true));
  return found;
}

at::Tensor unscale_and_check(const ParameterSet& parameters, double inv_scale, const std::vector<at::Device>& computed_on) {
  if (auto gradients = parameters.grads(); !gradients.empty() || parameters.empty())
    return unscale_and_check(gradients, inv_scale, computed_on);
  return at::zeros({}, parameters[0].value.options().dtype(at::kFloat).requires_grad(false));
}

}  // namespace npu_train
