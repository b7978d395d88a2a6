#include "npu_train/nn/init.hpp"

#include <ATen/ops/erfinv.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "npu_train/core/error.hpp"

namespace npu_train::init {
namespace {

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
  tensor.normal_(0.0, std);
}

void uniform_(const at::Tensor& tensor, double bound) {
  c10::AutoGradMode no_grad(false);
  tensor.uniform_(-bound, bound);
}

void trunc_normal_(const at::Tensor& tensor, double std, double lo, double hi) {
  check(std > 0 && lo < hi, ErrorKind::Usage, "init::trunc_normal_", "std ", std, ", cut at [", lo, ", ", hi,
        "]; std must be positive and lo below hi");
  c10::AutoGradMode no_grad(false);
  const double from = 2.0 * normal_cdf(lo / std) - 1.0;
  const double to = 2.0 * normal_cdf(hi / std) - 1.0;
  tensor.uniform_(from, to).erfinv_().mul_(std * std::sqrt(2.0)).clamp_(lo, hi);
}

void kaiming_normal_fan_out_(const at::Tensor& weight) { normal_(weight, std::sqrt(2.0 / static_cast<double>(fans(weight).out))); }

void kaiming_uniform_fan_in_(const at::Tensor& weight) { uniform_(weight, std::sqrt(1.0 / static_cast<double>(fans(weight).in))); }

void xavier_uniform_(const at::Tensor& weight) {
  const Fans f = fans(weight);
  uniform_(weight, std::sqrt(6.0 / static_cast<double>(f.in + f.out)));
}

}  // namespace npu_train::init
