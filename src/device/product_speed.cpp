#include "npu_train/device/product_speed.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <limits>

#include "npu_train/core/clock.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train {

double gemm_flops(const Device& device, c10::ScalarType dtype, int64_t size, int64_t repeats) {
  check(size > 0 && repeats > 0, ErrorKind::Usage, "gemm_flops", "matrices of ", size, ", ", repeats, " times; both must be positive");
  return translated("gemm_flops", [&] {
    const at::NoGradGuard no_grad;
    const auto& backend = backend_of(device);
    const auto options = at::TensorOptions().device(device.c10()).dtype(dtype);
    const at::Tensor a = at::ones({size, size}, options), b = at::ones({size, size}, options);
    at::Tensor c = at::empty({size, size}, options);
    const SteadyClock clock;
    double best = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i <= repeats; ++i) {
      const double start = clock.now();
      at::mm_out(c, a, b);
      backend.synchronize(device);
      if (i > 0) best = std::min(best, clock.now() - start);
    }
    const auto n = static_cast<double>(size);
    return 2 * n * n * n / best;
  });
}

bool has_units_for(const Device& device, c10::ScalarType low) {
  if (low == at::kFloat) return false;
  return low == at::kBFloat16 ? backend_of(device).capabilities(device).native_bf16 : !device.is_cpu();
}

}  // namespace npu_train
