/// bf16 and fp16 on a CPU on which libtorch's kernels for them are slow.
///
/// Without units for these types, they are 16 to 28 times slower than fp32. Inside an emulating Autocast, convolutions (1-d to 3-d,
/// transposed), linear, matmul, mm, bmm, addmm, baddbmm, addbmm, mv, addmv, dot, einsum and scaled_dot_product_attention behave as on a
/// unit with fp32 accumulation: fp32 kernels compute on inputs rounded to the low precision, and the result of each dispatched operator is
/// rounded once. The backward pass computes each gradient in the same way. Tensors saved for it are in low precision (attention recomputes
/// its scores).
///
/// The kernels are registered under libtorch's CPU autocast key once per process, by the first emulating region. They act only on threads
/// inside such a region; other threads use libtorch's kernels. They have no double backward: Error(Usage).
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// Method by which a CPU computes in low precision. Auto: natively if libtorch has fast kernels (for bf16 with AVX512_BF16, AMX-BF16 or the
/// bf16 extension of ARM, for fp16 with AMX-FP16), otherwise by emulation.
enum class CpuLowPrecision { Auto, Native, Emulated };

/// Returns "auto", "native", "emulated".
const std::vector<std::string>& cpu_low_precision_names();
/// Parses a name. Error(Usage) if it is unknown.
CpuLowPrecision cpu_low_precision_of(const std::string& name);

/// Returns whether `choice` emulates `dtype` (fp16 or bf16) on this machine.
bool emulates(CpuLowPrecision choice, at::ScalarType dtype);

/// Returns the dtype that the innermost Autocast of this thread emulates; nullopt if that Autocast is disabled or does not emulate, or if
/// there is none.
std::optional<at::ScalarType> emulated_dtype();

}  // namespace npu_train
