// Layers and losses, forward and backward.
#include "operators.hpp"

using namespace sim_cann;

namespace {

std::optional<Tensor> maybe(const Tensor& t) { return t.defined() ? std::optional<Tensor>(t) : std::nullopt; }
template <size_t N>
std::array<bool, N> array_of(const Bools& values) {
  TORCH_CHECK(values.size() == N, values.size(), " flags; expected ", N);
  std::array<bool, N> out{};
  std::copy(values.begin(), values.end(), out.begin());
  return out;
}
void all(const std::array<Out, 3>& outs, const std::tuple<Tensor, Tensor, Tensor>& values) {
  if (std::get<0>(values).defined()) outs[0] = std::get<0>(values);
  if (std::get<1>(values).defined()) outs[1] = std::get<1>(values);
  if (std::get<2>(values).defined()) outs[2] = std::get<2>(values);
}

}  // namespace

// ---- Matrix products, in fp32 as in a chip's cube unit. The last argument selects a precision, which has no effect on the host. ----

SIM_CANN_OPERATOR(Matmul, [](Tensor a, Tensor b, Out out, int8_t) { out = at::matmul(wide(a), wide(b)); })
SIM_CANN_OPERATOR(Mm, [](Tensor a, Tensor b, Out out, int8_t) { out = at::mm(wide(a), wide(b)); })
SIM_CANN_OPERATOR(BatchMatMul, [](Tensor a, Tensor b, Out out, int8_t) { out = at::bmm(wide(a), wide(b)); })
SIM_CANN_OPERATOR(Mv, [](Tensor a, Tensor b, Out out, int8_t) { out = at::mv(wide(a), wide(b)); })
SIM_CANN_OPERATOR(Dot, [](Tensor a, Tensor b, Out out) { out = at::dot(wide(a), wide(b)); })
SIM_CANN_OPERATOR(Addmm, [](Tensor c, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out, int8_t) {
  out = at::addmm(wide(c), wide(a), wide(b), beta, alpha);
})
SIM_CANN_OPERATOR(InplaceAddmm, [](Out self, Tensor a, Tensor b, Scalar beta, Scalar alpha, int8_t) {
  self = at::addmm(wide(self), wide(a), wide(b), beta, alpha);
})
SIM_CANN_OPERATOR(Addmv, [](Tensor c, Tensor a, Tensor b, Scalar alpha, Scalar beta, Out out, int8_t) {
  out = at::addmv(wide(c), wide(a), wide(b), beta, alpha);
})
SIM_CANN_OPERATOR(Addbmm, [](Tensor c, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out, int8_t) {
  out = at::addbmm(wide(c), wide(a), wide(b), beta, alpha);
})
SIM_CANN_OPERATOR(Baddbmm, [](Tensor c, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out, int8_t) {
  out = at::baddbmm(wide(c), wide(a), wide(b), beta, alpha);
})
SIM_CANN_OPERATOR(Addr,
                  [](Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Out out) { out = at::addr(self, a, b, beta, alpha); })

// ---- Convolution, also in fp32 ----

SIM_CANN_OPERATOR(Convolution, [](Tensor input, Tensor weight, Tensor bias, Ints stride, Ints padding, Ints dilation, bool transposed,
                                  Ints output_padding, int64_t groups, Out out, int8_t) {
  out = at::convolution(wide(input), wide(weight), maybe(wide(bias)), stride, padding, dilation, transposed, output_padding, groups);
})
SIM_CANN_OPERATOR(ConvolutionBackward,
                  [](Tensor grad, Tensor input, Tensor weight, Ints, Ints stride, Ints padding, Ints dilation, bool transposed,
                     Ints output_padding, int64_t groups, Bools mask, int8_t, Out grad_input, Out grad_weight, Out grad_bias) {
                    all({grad_input, grad_weight, grad_bias},
                        at::convolution_backward(wide(grad), wide(input), wide(weight), at::IntArrayRef{grad.size(1)}, stride, padding,
                                                 dilation, transposed, output_padding, groups, array_of<3>(mask)));
                  })

// ---- Normalisation ----

SIM_CANN_OPERATOR(BatchNorm, [](Tensor input, Tensor weight, Tensor bias, Out mean, Out variance, bool training, double momentum,
                                double eps, Out out, Out save_mean, Out save_invstd) {
  const auto [y, m, s] =
      at::native_batch_norm(wide(input), maybe(wide(weight)), maybe(wide(bias)), maybe(mean), maybe(variance), training, momentum, eps);
  out = y;
  if (!training) return;
  save_mean = m;
  save_invstd = s;
})
SIM_CANN_OPERATOR(BatchNormBackward, [](Tensor grad, Tensor input, Tensor weight, Tensor mean, Tensor variance, Tensor save_mean,
                                        Tensor save_invstd, bool training, double eps, Bools mask, Out grad_input, Out grad_weight,
                                        Out grad_bias) {
  all({grad_input, grad_weight, grad_bias},
      at::native_batch_norm_backward(wide(grad), wide(input), maybe(wide(weight)), maybe(wide(mean)), maybe(wide(variance)),
                                     maybe(wide(save_mean)), maybe(wide(save_invstd)), training, eps, array_of<3>(mask)));
})
SIM_CANN_OPERATOR(LayerNorm, [](Tensor input, Ints sizes, Tensor weight, Tensor bias, double eps, Out out, Out mean, Out rstd) {
  all({out, mean, rstd}, at::native_layer_norm(wide(input), sizes, maybe(wide(weight)), maybe(wide(bias)), eps));
})
SIM_CANN_OPERATOR(LayerNormBackward, [](Tensor grad, Tensor input, Ints sizes, Tensor mean, Tensor rstd, Tensor weight, Tensor bias,
                                        Bools mask, Out grad_input, Out grad_weight, Out grad_bias) {
  all({grad_input, grad_weight, grad_bias}, at::native_layer_norm_backward(wide(grad), wide(input), sizes, wide(mean), wide(rstd),
                                                                           maybe(wide(weight)), maybe(wide(bias)), array_of<3>(mask)));
})
SIM_CANN_OPERATOR(GroupNorm, [](Tensor input, Tensor weight, Tensor bias, int64_t n, int64_t channels, int64_t pixels, int64_t groups,
                                double eps, Out out, Out mean, Out rstd) {
  all({out, mean, rstd},
      at::native_group_norm(wide(input).contiguous(), maybe(wide(weight)), maybe(wide(bias)), n, channels, pixels, groups, eps));
})
SIM_CANN_OPERATOR(GroupNormBackward, [](Tensor grad, Tensor input, Tensor mean, Tensor rstd, Tensor weight, int64_t n, int64_t channels,
                                        int64_t pixels, int64_t groups, Bools mask, Out grad_input, Out grad_weight, Out grad_bias) {
  all({grad_input, grad_weight, grad_bias},
      at::native_group_norm_backward(wide(grad).contiguous(), wide(input).contiguous(), wide(mean), wide(rstd), maybe(wide(weight)), n,
                                     channels, pixels, groups, array_of<3>(mask)));
})
SIM_CANN_OPERATOR(RmsNorm, [](Tensor input, Tensor weight, double eps, Out out, Out rstd) {
  const Tensor x = wide(input);
  Ints dims;
  for (int64_t d = -weight.dim(); d < 0; ++d) dims.push_back(d);
  const Tensor r = at::rsqrt(x.pow(2).mean(dims, true) + eps);
  out = x * r * weight;
  rstd = r;
})
SIM_CANN_OPERATOR(RmsNormGrad, [](Tensor grad, Tensor input, Tensor rstd, Tensor weight, Out grad_input, Out grad_weight) {
  const Tensor x = wide(input), dy = wide(grad);
  Ints dims, outer;
  for (int64_t d = -weight.dim(); d < 0; ++d) dims.push_back(d);
  for (int64_t d = 0; d < x.dim() - weight.dim(); ++d) outer.push_back(d);
  const Tensor r = rstd.reshape(x.mean(dims, true).sizes()), normal = x * r, scaled = dy * weight;
  grad_input = r * (scaled - normal * (scaled * normal).mean(dims, true));
  grad_weight = outer.empty() ? dy * normal : (dy * normal).sum(outer);
})

// ---- Activations ----

SIM_CANN_OPERATOR(Gelu, [](Tensor self, Out out) { out = at::gelu(self); })
SIM_CANN_OPERATOR(GeluBackward, [](Tensor grad, Tensor self, Out out) { out = at::gelu_backward(grad, self); })
SIM_CANN_OPERATOR(GeluV2, [](Tensor self, int64_t approximate, Out out) { out = at::gelu(self, approximate == 0 ? "none" : "tanh"); })
SIM_CANN_OPERATOR(GeluBackwardV2,
                  [](Tensor grad, Tensor self, Text approximate, Out out) { out = at::gelu_backward(grad, self, approximate); })
SIM_CANN_OPERATOR(SiluBackward, [](Tensor grad, Tensor self, Out out) { out = at::silu_backward(grad, self); })
SIM_CANN_OPERATOR(SigmoidBackward, [](Tensor grad, Tensor output, Out out) { out = at::sigmoid_backward(grad, output); })
SIM_CANN_OPERATOR(TanhBackward, [](Tensor grad, Tensor output, Out out) { out = at::tanh_backward(grad, output); })
SIM_CANN_OPERATOR(MishBackward, [](Tensor grad, Tensor self, Out out) { out = at::mish_backward(grad, self); })
SIM_CANN_OPERATOR(Threshold, [](Tensor self, Scalar threshold, Scalar value, Out out) { out = at::threshold(self, threshold, value); })
SIM_CANN_OPERATOR(ThresholdBackward,
                  [](Tensor grad, Tensor self, Scalar threshold, Out out) { out = at::threshold_backward(grad, self, threshold); })
SIM_CANN_OPERATOR(LeakyRelu, [](Tensor self, Scalar slope, Out out) { out = at::leaky_relu(self, slope); })
SIM_CANN_OPERATOR(InplaceLeakyRelu, [](Out self, Scalar slope) { self = at::leaky_relu(self, slope); })
SIM_CANN_OPERATOR(LeakyReluBackward, [](Tensor grad, Tensor self, Scalar slope, bool is_result, Out out) {
  out = at::leaky_relu_backward(grad, self, slope, is_result);
})
SIM_CANN_OPERATOR(Elu, [](Tensor self, Scalar alpha, Scalar scale, Scalar input_scale, Out out) {
  out = at::elu(self, alpha, scale, input_scale);
})
SIM_CANN_OPERATOR(InplaceElu,
                  [](Out self, Scalar alpha, Scalar scale, Scalar input_scale) { self = at::elu(self, alpha, scale, input_scale); })
SIM_CANN_OPERATOR(EluBackward, [](Tensor grad, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, Tensor self, Out out) {
  out = at::elu_backward(grad, alpha, scale, input_scale, is_result, self);
})
SIM_CANN_OPERATOR(Celu, [](Tensor self, Scalar alpha, Out out) { out = at::celu(self, alpha); })
SIM_CANN_OPERATOR(HardswishBackward, [](Tensor grad, Tensor self, Out out) { out = at::hardswish_backward(grad, self); })
SIM_CANN_OPERATOR(HardsigmoidBackward, [](Tensor grad, Tensor self, Out out) { out = at::hardsigmoid_backward(grad, self); })
SIM_CANN_OPERATOR(Hardtanh, [](Tensor self, Scalar min, Scalar max, Out out) { out = at::hardtanh(self, min, max); })
SIM_CANN_OPERATOR(InplaceHardtanh, [](Out self, Scalar min, Scalar max) { self = at::hardtanh(self, min, max); })
SIM_CANN_OPERATOR(HardtanhBackward,
                  [](Tensor grad, Tensor self, Scalar min, Scalar max, Out out) { out = at::hardtanh_backward(grad, self, min, max); })
SIM_CANN_OPERATOR(Softplus, [](Tensor self, Scalar beta, Scalar threshold, Out out) { out = at::softplus(self, beta, threshold); })
SIM_CANN_OPERATOR(SoftplusBackward, [](Tensor grad, Tensor self, Scalar beta, Scalar threshold, Out out) {
  out = at::softplus_backward(grad, self, beta, threshold);
})
SIM_CANN_OPERATOR(LogSigmoidForward, [](Tensor self, Out out, Out) { out = at::log_sigmoid(self); })
SIM_CANN_OPERATOR(LogSigmoid, [](Tensor self, Out out) { out = at::log_sigmoid(self); })
SIM_CANN_OPERATOR(LogSigmoidBackward, [](Tensor grad, Tensor self, Tensor, Out out) { out = grad * at::sigmoid(-self); })
SIM_CANN_OPERATOR(Glu, [](Tensor self, int64_t dim, Out out) { out = at::glu(self, dim); })
SIM_CANN_OPERATOR(GluBackward, [](Tensor grad, Tensor self, int64_t dim, Out out) { out = at::glu_backward(grad, self, dim); })
SIM_CANN_OPERATOR(Prelu, [](Tensor self, Tensor weight, Out out) { out = at::_prelu_kernel(self, weight); })
SIM_CANN_OPERATOR(Softmax, [](Tensor self, int64_t dim, Out out) { out = at::_softmax(self, dim, false); })
SIM_CANN_OPERATOR(LogSoftmax, [](Tensor self, int64_t dim, Out out) { out = at::_log_softmax(self, dim, false); })
SIM_CANN_OPERATOR(SoftmaxBackward, [](Tensor grad, Tensor output, int64_t dim, Out out) {
  out = at::_softmax_backward_data(grad, output, dim, grad.scalar_type());
})
SIM_CANN_OPERATOR(LogSoftmaxBackward, [](Tensor grad, Tensor output, int64_t dim, Out out) {
  out = at::_log_softmax_backward_data(grad, output, dim, grad.scalar_type());
})
SIM_CANN_OPERATOR(SwiGlu, [](Tensor self, int64_t dim, Out out) {
  const auto half = at::chunk(wide(self), 2, dim);
  out = at::silu(half[0]) * half[1];
})
SIM_CANN_OPERATOR(SwiGluGrad, [](Tensor grad, Tensor self, int64_t dim, Out out) {
  const auto half = at::chunk(wide(self), 2, dim);
  const Tensor dy = wide(grad);
  out = at::cat({at::silu_backward(dy * half[1], half[0]), dy * at::silu(half[0])}, dim);
})

// ---- Embedding ----

SIM_CANN_OPERATOR(Embedding, [](Tensor weight, Tensor indices, Out out) { out = at::embedding(weight, indices.to(at::kLong)); })
SIM_CANN_OPERATOR(EmbeddingDenseBackward, [](Tensor grad, Tensor indices, int64_t rows, int64_t padding, bool by_frequency, Out out) {
  out = at::embedding_dense_backward(grad, indices.to(at::kLong), rows, padding, by_frequency);
})
SIM_CANN_OPERATOR(OneHot, [](Tensor self, int64_t, Tensor on, Tensor off, int64_t axis, Out out) {
  TORCH_CHECK(axis == -1 || axis == self.dim(), "one_hot along axis ", axis, "; allowed: the last");
  const Tensor classes = at::arange(out.get().size(-1), at::kLong);
  out = at::where(self.to(at::kLong).unsqueeze(-1) == classes, on.reshape({}), off.reshape({}));
})

// ---- Pooling. On a chip, indices of max_pool2d have a private layout. Here the backward pass finds the maxima again. ----

SIM_CANN_OPERATOR(MaxPool2dWithMask, [](Tensor self, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil, Out out, Out) {
  out = std::get<0>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil));
})
SIM_CANN_OPERATOR(MaxPool2dWithMaskBackward,
                  [](Tensor grad, Tensor self, Tensor, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil, Out out) {
                    const Tensor indices = std::get<1>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil));
                    out = at::max_pool2d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil, indices);
                  })
SIM_CANN_OPERATOR(AvgPool2d, [](Tensor self, Ints kernel, Ints stride, Ints padding, bool ceil, bool count_padding, int64_t divisor, int8_t,
                                Out out) {
  out = at::avg_pool2d(self, kernel, stride, padding, ceil, count_padding, divisor == 0 ? std::nullopt : std::optional(divisor));
})
SIM_CANN_OPERATOR(AvgPool2dBackward, [](Tensor grad, Tensor self, Ints kernel, Ints stride, Ints padding, bool ceil, bool count_padding,
                                        int64_t divisor, int8_t, Out out) {
  out = at::avg_pool2d_backward(grad, self, kernel, stride, padding, ceil, count_padding,
                                divisor == 0 ? std::nullopt : std::optional(divisor));
})
SIM_CANN_OPERATOR(AdaptiveAvgPool2d, [](Tensor self, Ints size, Out out) { out = at::_adaptive_avg_pool2d(self, size); })
SIM_CANN_OPERATOR(AdaptiveAvgPool2dBackward, [](Tensor grad, Tensor self, Out out) { out = at::_adaptive_avg_pool2d_backward(grad, self); })
SIM_CANN_OPERATOR(UpsampleNearest2d, [](Tensor self, Ints size, Out out) { out = at::upsample_nearest2d(self, size); })
SIM_CANN_OPERATOR(UpsampleNearest2dBackward, [](Tensor grad, Ints size, Ints input_size, double, double, Out out) {
  out = at::upsample_nearest2d_backward(grad, size, input_size);
})
SIM_CANN_OPERATOR(UpsampleBilinear2d,
                  [](Tensor self, Ints size, bool align, double, double, Out out) { out = at::upsample_bilinear2d(self, size, align); })
SIM_CANN_OPERATOR(UpsampleBilinear2dBackward, [](Tensor grad, Ints size, Ints input_size, bool align, double, double, Out out) {
  out = at::upsample_bilinear2d_backward(grad, size, input_size, align);
})

// ---- Losses. A reduction is 0: none, 1: mean, 2: sum. ----

SIM_CANN_OPERATOR(NLLLoss, [](Tensor self, Tensor target, Tensor weight, int64_t reduction, int64_t ignore, Out out, Out total) {
  const auto [loss, sum] = at::nll_loss_forward(self, target.to(at::kLong), maybe(weight), reduction, ignore);
  out = loss;
  total = sum;
})
SIM_CANN_OPERATOR(NLLLossBackward,
                  [](Tensor grad, Tensor self, Tensor target, Tensor weight, int64_t reduction, int64_t ignore, Tensor total, Out out) {
                    out = at::nll_loss_backward(grad, self, target.to(at::kLong), maybe(weight), reduction, ignore, total);
                  })
SIM_CANN_OPERATOR(NLLLoss2d, [](Tensor self, Tensor target, Tensor weight, int64_t reduction, int64_t ignore, Out out, Out total) {
  const auto [loss, sum] = at::nll_loss2d_forward(self, target.to(at::kLong), maybe(weight), reduction, ignore);
  out = loss;
  total = sum;
})
SIM_CANN_OPERATOR(NLLLoss2dBackward,
                  [](Tensor grad, Tensor self, Tensor target, Tensor weight, int64_t reduction, int64_t ignore, Tensor total, Out out) {
                    out = at::nll_loss2d_backward(grad, self, target.to(at::kLong), maybe(weight), reduction, ignore, total);
                  })
SIM_CANN_OPERATOR(MseLoss, [](Tensor self, Tensor target, int64_t reduction, Out out) { out = at::mse_loss(self, target, reduction); })
SIM_CANN_OPERATOR(MseLossBackward, [](Tensor grad, Tensor self, Tensor target, int64_t reduction, Out out) {
  out = at::mse_loss_backward(grad, self, target, reduction);
})
SIM_CANN_OPERATOR(L1Loss, [](Tensor self, Tensor target, int64_t reduction, Out out) { out = at::l1_loss(self, target, reduction); })
SIM_CANN_OPERATOR(L1LossBackward, [](Tensor grad, Tensor self, Tensor target, int64_t reduction, Out out) {
  const Tensor sign = at::sign(self - target) * grad;
  out = reduction == 1 ? sign / self.numel() : sign;
})
SIM_CANN_OPERATOR(SmoothL1Loss, [](Tensor self, Tensor target, int64_t reduction, float beta, Out out) {
  out = at::smooth_l1_loss(self, target, reduction, beta);
})
SIM_CANN_OPERATOR(SmoothL1LossBackward, [](Tensor grad, Tensor self, Tensor target, int64_t reduction, float beta, Out out) {
  out = at::smooth_l1_loss_backward(grad, self, target, reduction, beta);
})
SIM_CANN_OPERATOR(BinaryCrossEntropy, [](Tensor self, Tensor target, Tensor weight, int64_t reduction, Out out) {
  out = at::binary_cross_entropy(self, target, maybe(weight), reduction);
})
SIM_CANN_OPERATOR(BinaryCrossEntropyBackward, [](Tensor grad, Tensor self, Tensor target, Tensor weight, int64_t reduction, Out out) {
  out = at::binary_cross_entropy_backward(grad, self, target, maybe(weight), reduction);
})
SIM_CANN_OPERATOR(BinaryCrossEntropyWithLogits, [](Tensor self, Tensor target, Tensor weight, Tensor positive, int64_t reduction, Out out) {
  out = at::binary_cross_entropy_with_logits(self, target, maybe(weight), maybe(positive), reduction);
})
SIM_CANN_OPERATOR(BinaryCrossEntropyWithLogitsBackward,
                  [](Tensor grad, Tensor self, Tensor target, Tensor weight, Tensor positive, int64_t reduction, Out out) {
                    const Tensor p = at::sigmoid(self);
                    Tensor d = positive.defined() ? (positive * target + 1 - target) * p - positive * target : p - target;
                    if (weight.defined()) d = d * weight;
                    out = reduction == 1 ? d * grad / self.numel() : d * grad;
                  })
SIM_CANN_OPERATOR(KlDiv, [](Tensor self, Tensor target, int64_t reduction, bool log_target, Out out) {
  out = at::kl_div(self, target, reduction, log_target);
})
SIM_CANN_OPERATOR(KlDivBackward, [](Tensor grad, Tensor self, Tensor target, int64_t reduction, bool log_target, Out out) {
  const Tensor d = -(log_target ? at::exp(target) : target) * grad;
  out = reduction == 1 ? d / self.numel() : d;
})
