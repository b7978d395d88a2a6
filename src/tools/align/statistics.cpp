#include "npu_train/tools/align/statistics.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/all.h>
#include <ATen/ops/any.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/min.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "npu_train/core/error.hpp"
#include "tools/align/block_kernels.hpp"
#include "tools/align/chunks.hpp"
#include "tools/align/crc32.hpp"

namespace npu_train {
namespace {

// Returns a strided tensor with the same values, detached from autograd.
at::Tensor dense_values(const at::Tensor& t, const char* where) {
  check(t.defined(), ErrorKind::Usage, where, "the tensor is undefined; any other is allowed");
  check(!t.is_meta(), ErrorKind::Usage, where, "the tensor is on the meta device and has no values; hint: compute it on a real device");
  at::Tensor out = t.detach();
  if (out.is_quantized()) out = out.dequantize();
  if (out.layout() != at::kStrided) out = out.to_dense();
  return out.resolve_conj().resolve_neg();
}

template <class T>
detail::ValueSums sums_of_memory(at::ScalarType dtype, const char* data, int64_t n) {
  const auto& kernels = detail::block_kernels<T>();
  const auto size = static_cast<int64_t>(c10::elementSize(dtype));
  const auto parts = detail::parts_of_chunks(n, [&](int64_t start, int64_t count) {
    alignas(64) T buffer[detail::kBlock];
    detail::ValueSums sums;
    for (int64_t i = start; i < start + count; i += detail::kBlock) {
      const int64_t length = std::min(detail::kBlock, start + count - i);
      sums.join(kernels.values(kernels.widened(dtype, data + i * size, length, buffer), length));
    }
    return sums;
  });
  detail::ValueSums out;
  for (const auto& part : parts) out.join(part);
  return out;
}

detail::ValueSums sums_of(at::Tensor t) {
  if (!detail::widens_to_double(t.scalar_type())) t = t.to(at::kFloat);  // 8-bit floats
  if (!t.is_non_overlapping_and_dense()) t = t.contiguous();
  const auto* data = static_cast<const char*>(t.const_data_ptr());
  return detail::widens_to_float(t.scalar_type()) ? sums_of_memory<float>(t.scalar_type(), data, t.numel())
                                                  : sums_of_memory<double>(t.scalar_type(), data, t.numel());
}

TensorStatistics statistics_on_host(const at::Tensor& t) {
  TensorStatistics out;
  if (t.numel() == 0) return out;
  const auto dtype = t.scalar_type();
  const auto sums = sums_of(t.is_complex() ? at::abs(dtype == at::kComplexHalf ? t.to(at::kComplexFloat) : t) : t);
  const double count = static_cast<double>(t.numel()), nan = std::numeric_limits<double>::quiet_NaN();
  out.nan = sums.nan;
  out.inf = sums.inf;
  out.max = sums.nan > 0 ? nan : sums.max;
  out.min = sums.nan > 0 ? nan : sums.min;
  if (dtype == at::kBool) return out;
  out.mean = sums.sum / count;
  if (t.is_complex()) return out;
  out.norm = t.dim() == 0 ? sums.sum : std::sqrt(sums.squares);
  return out;
}

at::Tensor row_of(const at::Tensor& max, const at::Tensor& min, const at::Tensor& mean, const at::Tensor& norm) {
  return at::stack({max.to(at::kFloat), min.to(at::kFloat), mean.to(at::kFloat), norm.to(at::kFloat)});
}

}  // namespace

TensorStatistics statistics_of(const at::Tensor& t) {
  return translated("statistics_of", [&] {
    const c10::NoGradGuard no_grad;
    const auto values = dense_values(t, "statistics_of");
    return values.is_cpu() ? statistics_on_host(values) : from_device(device_statistics(values).cpu());
  });
}

at::Tensor device_statistics(const at::Tensor& t) {
  return translated("device_statistics", [&] {
    const c10::NoGradGuard no_grad;
    auto x = dense_values(t, "device_statistics");
    const auto options = x.options().dtype(at::kFloat);
    const auto constant = [&](float value) { return at::full({}, value, options); };
    constexpr float kInf = std::numeric_limits<float>::infinity();
    if (x.numel() == 0) return row_of(constant(-kInf), constant(kInf), constant(0), constant(-1));
    if (x.scalar_type() == at::kBool) return row_of(x.any(), x.all(), constant(-1), constant(-2));
    const bool complex = x.is_complex();
    if (complex) x = at::abs(x);
    // Reductions convert elements as they read them, so bf16 and fp16 need no copy in a wider dtype.
    if (!detail::widens_to_float(x.scalar_type())) x = x.to(at::kFloat);
    if (x.dim() == 0) return row_of(x, x, x, complex ? constant(-1) : x);
    // Uses max and min instead of aminmax, which torch_npu lacks for bf16.
    return row_of(at::max(x), at::min(x), at::mean(x, at::kFloat),
                  complex ? constant(-1) : at::linalg_vector_norm(x, 2, {}, false, at::kFloat));
  });
}

TensorStatistics from_device(const at::Tensor& row_on_host) {
  check(row_on_host.defined() && row_on_host.is_cpu() && row_on_host.scalar_type() == at::kFloat && row_on_host.dim() == 1 &&
            row_on_host.numel() == 4,
        ErrorKind::Usage, "from_device", "not a row of device_statistics; it must be float32 [4] on the CPU");
  const auto row = row_on_host.contiguous();
  const float* values = row.const_data_ptr<float>();
  TensorStatistics out;
  if (values[0] < values[1]) return out;
  out.max = values[0];
  out.min = values[1];
  const bool has_norm = !(values[3] < 0) || values[3] == values[2];  // without dimensions, the norm may be negative, and equal to the mean
  if (has_norm || !(values[2] < 0)) out.mean = values[2];
  if (has_norm) out.norm = values[3];
  return out;
}

uint32_t crc32_of(const at::Tensor& t) {
  check(t.defined() && t.layout() == at::kStrided && !t.is_quantized() && !t.is_meta(), ErrorKind::Usage, "crc32_of",
        "not a dense tensor with values; sparse, quantised, meta and undefined ones have no bytes in C order");
  return translated("crc32_of", [&] {
    const c10::NoGradGuard no_grad;
    const auto host = t.detach().cpu().resolve_conj().resolve_neg().contiguous();
    const auto* data = static_cast<const char*>(host.const_data_ptr());
    const auto size = static_cast<int64_t>(host.element_size());
    struct Part {
      uint32_t crc;
      int64_t bytes;
    };
    const auto parts = detail::parts_of_chunks(host.numel(), [&](int64_t start, int64_t count) {
      return Part{detail::crc32_of_bytes(data + start * size, count * size), count * size};
    });
    uint32_t out = 0;
    for (const auto& part : parts) out = detail::crc32_joined(out, part.crc, part.bytes);
    return out;
  });
}

}  // namespace npu_train
