#include "npu_train/nn/dropout.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/portable_random.hpp"

namespace npu_train {
namespace {

// Returns 1 / (1 - p) for kept values and 0 for dropped ones.
at::Tensor factors(at::IntArrayRef sizes, const at::Tensor& like, double p) {
  at::Tensor keep;
  if (PortableRandom::is_on())
    keep = PortableRandom::uniform(sizes, like.device()).ge(p).to(like.scalar_type());
  else
    keep = at::empty(sizes, like.options().requires_grad(false)).bernoulli_(1.0 - p);
  return p < 1.0 ? keep.div_(1.0 - p) : keep;
}

bool drops(double p, bool training) {
  check(p >= 0.0 && p <= 1.0, ErrorKind::Usage, "dropout", "p is ", p, "; it must be between 0 and 1");
  return training && p > 0.0;
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, bool training) {
  if (!drops(p, training)) return x;
  return PortableRandom::is_on() ? x * factors(x.sizes(), x, p) : at::dropout(x, p, true);
}

at::Tensor drop_path(const at::Tensor& x, double p, bool training) {
  if (!drops(p, training)) return x;
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[0] = x.size(0);
  return x * factors(sizes, x, p);
}

}  // namespace npu_train
