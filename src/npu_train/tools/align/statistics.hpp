/// Statistics of one tensor as in dumps of Ascend's msprobe, cheap enough for all tensors of a training step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace npu_train {

/// The values that msprobe writes as Max, Min, Mean and Norm, computed by msprobe's rules:
///
///   no elements                  none
///   bool                         max = any, min = all, as 0 or 1; no mean, no norm
///   complex                      max, min and mean of |x|; no norm
///   zero dimensions              all four are the value (the norm, too, with the sign of the value)
///   others                       norm is the L2 norm
///
/// As in torch, one NaN makes all four NaN, and infinities are kept (the mean of inf and -inf is NaN).
struct TensorStatistics {
  std::optional<double> max, min, mean, norm;
  /// Numbers of elements that are NaN, inf or -inf; complex elements are counted by |x|. 0 if computed on a device.
  int64_t nan = 0, inf = 0;
};

/// Returns the statistics of any tensor. On the CPU they are computed in double precision, never in the tensor's dtype. So squares of
/// float32, bfloat16 and float16 values cannot overflow; squares of float64 values above 1e154 give inf, as in torch. (msprobe computes in
/// float32, so that its mean and norm may differ from these in the last digits.) Integers of more than 53 bits are rounded.
///
/// Makes one pass over memory on all threads for any layout without gaps, including channels_last; other layouts are copied first. The
/// result does not depend on the number of threads, but between layouts of the same values it may differ by rounding in double.
///
/// For a device tensor, returns from_device(device_statistics(t)), which waits for the device. Sparse and quantised tensors are made dense
/// first. Error(Usage) for an undefined tensor, and for one on the device "meta".
TensorStatistics statistics_of(const at::Tensor& t);

/// Returns the statistics as float32 [4] (max, min, mean, norm) on the tensor's device, without a read by the host: stack the rows of many
/// tensors and read them at once. They are in float32, because an NPU computes float64 slowly; therefore squares above 3e38 give a norm of
/// inf. Missing statistics are encoded by impossible values: max below min if there are no elements; a negative norm that differs from the
/// mean if there is no norm; a negative mean, too, if there is no mean either.
at::Tensor device_statistics(const at::Tensor& t);

/// Decodes one row of device_statistics, which must be on the CPU. Error(Usage) unless it is float32 [4].
TensorStatistics from_device(const at::Tensor& row_on_host);

/// Returns the CRC-32 (as in zlib, PNG and msprobe's mode "md5") of the elements' bytes in C order, in the tensor's dtype, computed on all
/// threads. A device tensor is copied first. Error(Usage) for sparse, quantised and undefined tensors.
uint32_t crc32_of(const at::Tensor& t);

}  // namespace npu_train
