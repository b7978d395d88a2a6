#include "npu_train/nn/init.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/erfinv.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <mutex>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/own_generator.hpp"

namespace npu_train::init {
namespace {

// Computes SplitMix64's output function (Steele, Lea, Flood 2014).
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t draw_seed() {
  at::Generator generator = host_generator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

// Maps 23 random bits to the middle of their interval in (0, 1). The result is exact, so neither 0 nor 1 occurs. (With 24 bits, adding 0.5
// would round.)
float unit(uint64_t bits) { return (static_cast<float>(bits & 0x7fffffu) + 0.5f) * 0x1p-23f; }

// Fills with U(lo, hi). For contiguous fp32 tensors on the CPU, one number from the generator seeds a counter-based fill, which is ten
// times as fast as one draw per element, and independent of the number of threads.
void fill_uniform(const at::Tensor& tensor, double lo, double hi) {
  if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
    tensor.uniform_(lo, hi);
    return;
  }
  const uint64_t seed = draw_seed();
  const auto from = static_cast<float>(lo), width = static_cast<float>(hi - lo);
  float* out = tensor.data_ptr<float>();
  const int64_t count = tensor.numel();
  at::parallel_for(0, (count + 1) / 2, 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t bits = mixed(seed + static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15ull);
      out[2 * i] = from + width * unit(bits >> 41);
      if (2 * i + 1 < count) out[2 * i + 1] = from + width * unit(bits >> 8);
    }
  });
  tensor.unsafeGetTensorImpl()->bump_version();
}

double normal_cdf(double x) { return 0.5 * (1.0 + std::erf(x / std::sqrt(2.0))); }

}  // namespace

Fans fans(const at::Tensor& weight) {
  check(weight.dim() >= 2, ErrorKind::Usage, "init", "a weight of ", weight.dim(), " dimensions has no fan; it needs at least [out, in]");
  int64_t receptive = 1;
  for (int64_t d = 2; d < weight.dim(); ++d) receptive *= weight.size(d);
  return {weight.size(1) * receptive, weight.size(0) * receptive};
}

void zeros_(const at::Tensor& tensor) {
  c10::AutoGradMode no_grad(false);
  tensor.zero_();
}

void ones_(const at::Tensor& tensor) {
  c10::AutoGradMode no_grad(false);
  tensor.fill_(1);
}

void normal_(const at::Tensor& tensor, double std) {
  c10::AutoGradMode no_grad(false);
  fill_uniform(tensor, -1.0, 1.0);
  tensor.erfinv_().mul_(std * std::sqrt(2.0));
}

void uniform_(const at::Tensor& tensor, double bound) {
  c10::AutoGradMode no_grad(false);
  fill_uniform(tensor, -bound, bound);
}

void trunc_normal_(const at::Tensor& tensor, double std, double lo, double hi) {
  check(std > 0 && lo < hi, ErrorKind::Usage, "init::trunc_normal_", "std ", std, ", cut at [", lo, ", ", hi,
        "]; std must be positive and lo below hi");
  c10::AutoGradMode no_grad(false);
  const double from = 2.0 * normal_cdf(lo / std) - 1.0;
  const double to = 2.0 * normal_cdf(hi / std) - 1.0;
  fill_uniform(tensor, from, to);
  tensor.erfinv_().mul_(std * std::sqrt(2.0)).clamp_(lo, hi);
}

void kaiming_normal_fan_out_(const at::Tensor& weight) { normal_(weight, std::sqrt(2.0 / static_cast<double>(fans(weight).out))); }

void kaiming_uniform_fan_in_(const at::Tensor& weight) { uniform_(weight, std::sqrt(1.0 / static_cast<double>(fans(weight).in))); }

void xavier_uniform_(const at::Tensor& weight) {
  const Fans f = fans(weight);
  uniform_(weight, std::sqrt(6.0 / static_cast<double>(f.in + f.out)));
}

}  // namespace npu_train::init
