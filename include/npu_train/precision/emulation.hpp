/// bf16 and fp16 on a CPU that has no units for them.
///
/// libtorch's own kernels are 16 to 28 times slower than fp32 there. Inside an emulating Autocast, convolutions (1-d to 3-d, transposed),
/// linear, matmul, mm, bmm, addmm, baddbmm, addbmm, mv, addmv, dot, einsum and scaled_dot_product_attention do what a unit with fp32
/// accumulation does: inputs rounded to the low precision, computed by fp32 kernels, and the result of each dispatched operator rounded
/// once; in the backward pass each gradient likewise. What the backward pass keeps is in low precision (attention recomputes its scores).
///
/// The kernels are put under libtorch's autocast of the CPU once per process, at the first emulating region, and act on the threads that
/// are inside one; everywhere else libtorch's own kernels run. They have no double backward: Error(Usage).
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// How low precision is computed on a CPU. Auto: natively where the CPU multiplies in that type (AVX512_BF16, AMX, the bf16 extension of
/// ARM; AVX512_FP16, FEAT_FP16), else emulated.
enum class CpuLowPrecision { Auto, Native, Emulated };

/// "auto", "native", "emulated".
const std::vector<std::string>& cpu_low_precision_names();
/// Error(Usage) for another name.
CpuLowPrecision cpu_low_precision_of(const std::string& name);

/// Whether `dtype` (fp16 or bf16) is emulated on this machine under `choice`.
bool emulates(CpuLowPrecision choice, at::ScalarType dtype);

/// The dtype that this thread emulates now: inside an emulating Autocast, and not inside a disabled one within.
std::optional<at::ScalarType> emulated_dtype();

}  // namespace npu_train
