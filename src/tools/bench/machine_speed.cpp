#include "npu_train/tools/bench/machine_speed.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/tools/bench/samples.hpp"

namespace npu_train {

double gemm_flops(const Device& device, c10::ScalarType dtype, int64_t size, int64_t repeats) {
  check(size > 0 && repeats > 0, ErrorKind::Usage, "bench", "matrices of ", size, ", ", repeats, " times; both must be positive");
  return translated("bench", [&] {
    const at::NoGradGuard no_grad;
    const auto& backend = backend_of(device);
    const auto options = at::TensorOptions().device(device.c10()).dtype(dtype);
    const at::Tensor a = at::ones({size, size}, options), b = at::ones({size, size}, options);
    at::Tensor c = at::empty({size, size}, options);
    const auto times = measure(
        [&] {
          at::mm_out(c, a, b);
          backend.synchronize(device);
        },
        repeats);
    const auto n = static_cast<double>(size);
    return 2 * n * n * n / times.min();
  });
}

double copy_bandwidth(const Device& device, int64_t bytes, int64_t repeats) {
  check(bytes > 0 && repeats > 0, ErrorKind::Usage, "bench", bytes, " bytes, ", repeats, " times; both must be positive");
  return translated("bench", [&] {
    const at::NoGradGuard no_grad;
    const auto& backend = backend_of(device);
    const at::Tensor from = at::ones({bytes}, at::TensorOptions().device(device.c10()).dtype(at::kByte));
    at::Tensor to = at::empty({bytes}, from.options());
    const auto times = measure(
        [&] {
          to.copy_(from);
          backend.synchronize(device);
        },
        repeats);
    return 2 * static_cast<double>(bytes) / times.min();
  });
}

}  // namespace npu_train
