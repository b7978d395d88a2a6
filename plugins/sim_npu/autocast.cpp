// Autocast for the device, with libtorch's common lists: products in low precision; exponentials, norms and losses in fp32. libtorch
// registers no autocast for this dispatch key.
#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace {

at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  C10_THROW_ERROR(Error,
                  "binary_cross_entropy is not safe under autocast: its input may be 0 or 1 in low precision; use "
                  "binary_cross_entropy_with_logits");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

using namespace at;  // required by the macros

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define NPU_TRAIN_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NPU_TRAIN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define NPU_TRAIN_FP32_SET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define NPU_TRAIN_APPEND(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)
#define NPU_TRAIN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(NPU_TRAIN_LOWER)
  AT_FORALL_FP32(NPU_TRAIN_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NPU_TRAIN_FP32_SET)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(NPU_TRAIN_APPEND)
  AT_FORALL_PROMOTE(NPU_TRAIN_PROMOTE)
#undef NPU_TRAIN_LOWER
#undef NPU_TRAIN_FP32
#undef NPU_TRAIN_FP32_SET
#undef NPU_TRAIN_APPEND
#undef NPU_TRAIN_PROMOTE
  m.impl("binary_cross_entropy", TORCH_FN(binary_cross_entropy_banned));
}
