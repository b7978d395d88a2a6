// CUDA, used through libtorch's device-generic calls: this file compiles and links without CUDA.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include "device/builtin_backends.hpp"
#include "npu_train/device/backend.hpp"

namespace npu_train::detail {
namespace {

class CudaBackend final : public GenericBackend {
 public:
  CudaBackend() : GenericBackend("cuda", c10::DeviceType::CUDA) {}

  std::string why_not() const override {
    if (is_available()) return "";
    if (!c10::impl::hasDeviceGuardImpl(type()))
      return "CUDA is not in this libtorch, which is built for the CPU alone; install a CUDA build of torch 2.11 or newer (on Linux "
             "`pip install torch` from PyPI brings one), point Torch_DIR at it and build npu_train again";
    return "libtorch has CUDA but finds no GPU; look whether `nvidia-smi` lists one, whether its driver is as new as the CUDA that "
           "libtorch was "
           "built with, and whether CUDA_VISIBLE_DEVICES hides it";
  }

  int visible_count() const override { return count(); }

  Capabilities capabilities(const Device& device) const override {
    const c10::DeviceGuard guard(checked(device));
    // Uses libtorch's test for compute capability 8.0 or higher. From 8.0 on, tensor cores support bf16.
    return {.native_bf16 = at::detail::getCUDAHooks().supportsBFloat16ConvolutionWithCuDNNv8(),
            .native_fp16 = true,
            .pinned_memory = true,
            .streams = true,
            .channels_last = true,
            .saturating_overflow = false,
            .all_fused_optimizers = true,
            .fp64 = true};
  }
};

}  // namespace

const DeviceBackend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace npu_train::detail
