// The sticky overflow status of a device, through torch_npu's operators: eight numbers, of which only the first is used.
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "sim.hpp"

namespace npu_train::sim {
namespace {

template <class T>
bool clamp(T* values, int64_t n, float largest) {
  bool found = false;
  for (int64_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(values[i]);
    if (std::isfinite(x)) continue;
    values[i] = static_cast<T>(std::isnan(x) ? 0.0F : std::copysign(largest, x));
    found = true;
  }
  return found;
}

bool clamp_all(const at::Tensor& t) {
  const auto n = t.numel();
  if (t.scalar_type() == at::kHalf) return clamp(t.data_ptr<c10::Half>(), n, 65504.0F);
  if (t.scalar_type() == at::kBFloat16) return clamp(t.data_ptr<c10::BFloat16>(), n, std::numeric_limits<c10::BFloat16>::max());
  return clamp(t.data_ptr<float>(), n, std::numeric_limits<float>::max());
}

at::Tensor alloc_status(const at::Tensor& self) { return at::zeros({8}, self.options().dtype(at::kFloat)); }

// The first generation writes into its argument; later ones return a new tensor of eight int32.
at::Tensor get_status(const at::Tensor& self, int64_t) {
  const auto status = sim().float_status[self.device().index()].load();
  const bool fills = sim().soc == "910A" || sim().soc == "310P";
  at::Tensor out = fills ? self : at::zeros({8}, self.options().dtype(at::kInt));
  out.select(0, 0).fill_(status);
  return out;
}

at::Tensor clear_status(const at::Tensor& self, int64_t) {
  sim().float_status[self.device().index()] = 0;
  return self.zero_();
}

}  // namespace

void saturate(const at::Tensor& view, c10::DeviceIndex device) {
  const auto type = view.scalar_type();
  if (!sim().saturate || (type != at::kHalf && type != at::kBFloat16 && type != at::kFloat)) return;
  const bool dense = view.is_non_overlapping_and_dense();
  const at::Tensor values = dense ? view : view.contiguous();
  if (!clamp_all(values)) return;
  if (!dense) view.copy_(values);
  sim().float_status[device] = 1;
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("npu_alloc_float_status(Tensor self) -> Tensor");
  m.def("npu_get_float_status(Tensor self, int mode=0) -> Tensor");
  m.def("npu_clear_float_status(Tensor self, int mode=0) -> Tensor");
}

TORCH_LIBRARY_IMPL(npu, PrivateUse1, m) {
  m.impl("npu_alloc_float_status", TORCH_FN(alloc_status));
  m.impl("npu_get_float_status", TORCH_FN(get_status));
  m.impl("npu_clear_float_status", TORCH_FN(clear_status));
}

}  // namespace npu_train::sim
