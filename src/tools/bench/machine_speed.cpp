#include "npu_train/tools/bench/machine_speed.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/tools/bench/samples.hpp"

namespace npu_train {

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
