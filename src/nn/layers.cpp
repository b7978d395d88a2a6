#include "npu_train/nn/layers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <ostream>

#include "nn/library_conv.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/lowered_conv.hpp"
#include "npu_train/nn/packed_linear.hpp"

namespace npu_train {

Conv2d::Conv2d(const Options& o) : torch::nn::Module("Conv2d"), options(o) {
  check(o.in > 0 && o.out > 0 && o.kernel > 0 && o.stride > 0 && o.padding >= 0, ErrorKind::Usage, "Conv2d", "in ", o.in, ", out ", o.out,
        ", kernel ", o.kernel, ", stride ", o.stride, ", padding ", o.padding, "; all must be at least 1, padding at least 0");
  check(!o.lowered || !o.bias, ErrorKind::Usage, "Conv2d", "a lowered convolution has no bias");
  weight = register_parameter("weight", at::empty({o.out, o.in, o.kernel, o.kernel}));
  if (o.bias) bias = register_parameter("bias", at::empty({o.out}));
}

at::Tensor Conv2d::forward(const at::Tensor& x) const {
  if (options.lowered) return lowered_conv2d(x, weight, options.stride, options.padding);
  return detail::library_conv2d(x, weight, bias, options.stride, options.padding);
}

void Conv2d::pretty_print(std::ostream& stream) const {
  stream << "Conv2d(" << options.in << ", " << options.out << ", kernel=" << options.kernel << ", stride=" << options.stride
         << ", padding=" << options.padding << (options.bias ? ")" : ", bias=false)");
}

Linear::Linear(int64_t in, int64_t out, bool with_bias, bool packed) : torch::nn::Module("Linear"), packed(packed) {
  check(in > 0 && out > 0, ErrorKind::Usage, "Linear", "in ", in, ", out ", out, "; both must be at least 1");
  weight = register_parameter("weight", at::empty({out, in}));
  if (with_bias) bias = register_parameter("bias", at::empty({out}));
}

at::Tensor Linear::forward(const at::Tensor& x) const { return packed ? packed_linear(x, weight, bias) : at::linear(x, weight, bias); }

void Linear::pretty_print(std::ostream& stream) const {
  stream << "Linear(" << weight.size(1) << ", " << weight.size(0) << (bias.defined() ? ")" : ", bias=false)");
}

}  // namespace npu_train
