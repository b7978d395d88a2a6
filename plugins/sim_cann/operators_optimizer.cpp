// Operators on lists of tensors, optimizers, loss scaling.
#include "operators.hpp"

using namespace sim_cann;

namespace {

template <class F>
void each(const Tensors& in, const Outs& outs, const F& f) {
  TORCH_CHECK(in.size() == outs.size(), in.size(), " tensors for ", outs.size(), " results");
  for (size_t i = 0; i < in.size(); ++i) outs[i] = f(in[i], i);
}

}  // namespace

// ---- One function for each tensor ----

#define SIM_CANN_FOREACH(NAME, FUNCTION) \
  SIM_CANN_OPERATOR(Foreach##NAME, [](Tensors in, Outs outs) { each(in, outs, [](const Tensor& t, size_t) { return at::FUNCTION(t); }); })
SIM_CANN_FOREACH(Abs, abs)
SIM_CANN_FOREACH(Acos, acos)
SIM_CANN_FOREACH(Asin, asin)
SIM_CANN_FOREACH(Atan, atan)
SIM_CANN_FOREACH(Copy, alias)
SIM_CANN_FOREACH(Cos, cos)
SIM_CANN_FOREACH(Cosh, cosh)
SIM_CANN_FOREACH(Erf, erf)
SIM_CANN_FOREACH(Erfc, erfc)
SIM_CANN_FOREACH(Exp, exp)
SIM_CANN_FOREACH(Expm1, expm1)
SIM_CANN_FOREACH(Log, log)
SIM_CANN_FOREACH(Log10, log10)
SIM_CANN_FOREACH(Log1p, log1p)
SIM_CANN_FOREACH(Log2, log2)
SIM_CANN_FOREACH(Neg, neg)
SIM_CANN_FOREACH(Reciprocal, reciprocal)
SIM_CANN_FOREACH(Sigmoid, sigmoid)
SIM_CANN_FOREACH(Sign, sign)
SIM_CANN_FOREACH(Sin, sin)
SIM_CANN_FOREACH(Sinh, sinh)
SIM_CANN_FOREACH(Sqrt, sqrt)
SIM_CANN_FOREACH(Tan, tan)
SIM_CANN_FOREACH(Tanh, tanh)
SIM_CANN_OPERATOR(ForeachZeroInplace, [](Outs self) {
  for (const auto& t : self) t.get().zero_();
})
SIM_CANN_OPERATOR(ForeachNorm,
                  [](Tensors in, Scalar p, Outs outs) { each(in, outs, [&](const Tensor& t, size_t) { return at::norm(t, p); }); })

// ---- Second argument: a list, a scalar, or a scalar for each tensor. torch_npu uses older versions only if these are missing. ----

#define SIM_CANN_FOREACH_BINARY(NAME, FUNCTION)                                               \
  SIM_CANN_OPERATOR(Foreach##NAME##ScalarV2, [](Tensors in, Scalar value, Outs outs) {        \
    each(in, outs, [&](const Tensor& t, size_t) { return at::FUNCTION(t, value); });          \
  })                                                                                          \
  SIM_CANN_OPERATOR(Foreach##NAME##ScalarList, [](Tensors in, Scalars values, Outs outs) {    \
    each(in, outs, [&](const Tensor& t, size_t i) { return at::FUNCTION(t, values.at(i)); }); \
  })
#define SIM_CANN_FOREACH_LIST(NAME, FUNCTION)                                                \
  SIM_CANN_OPERATOR(Foreach##NAME##List, [](Tensors in, Tensors other, Outs outs) {          \
    each(in, outs, [&](const Tensor& t, size_t i) { return at::FUNCTION(t, other.at(i)); }); \
  })
SIM_CANN_FOREACH_BINARY(Add, add)
SIM_CANN_FOREACH_BINARY(Sub, sub)
SIM_CANN_FOREACH_BINARY(Mul, mul)
SIM_CANN_FOREACH_BINARY(Div, div)
SIM_CANN_FOREACH_BINARY(Pow, pow)
SIM_CANN_FOREACH_BINARY(Maximum, clamp_min)
SIM_CANN_FOREACH_BINARY(Minimum, clamp_max)
SIM_CANN_FOREACH_LIST(Mul, mul)
SIM_CANN_FOREACH_LIST(Div, div)
SIM_CANN_FOREACH_LIST(Pow, pow)
SIM_CANN_FOREACH_LIST(Maximum, maximum)
SIM_CANN_FOREACH_LIST(Minimum, minimum)
SIM_CANN_OPERATOR(ForeachAddListV2, [](Tensors in, Tensors other, Scalar alpha, Outs outs) {
  each(in, outs, [&](const Tensor& t, size_t i) { return at::add(t, other.at(i), alpha); });
})
SIM_CANN_OPERATOR(ForeachSubListV2, [](Tensors in, Tensors other, Scalar alpha, Outs outs) {
  each(in, outs, [&](const Tensor& t, size_t i) { return at::sub(t, other.at(i), alpha); });
})
SIM_CANN_OPERATOR(ForeachPowScalarAndTensor, [](Scalar base, Tensors exponents, Outs outs) {
  each(exponents, outs, [&](const Tensor& t, size_t) { return at::pow(base, t); });
})
SIM_CANN_OPERATOR(ForeachLerpList, [](Tensors in, Tensors end, Tensors weight, Outs outs) {
  each(in, outs, [&](const Tensor& t, size_t i) { return at::lerp(t, end.at(i), weight.at(i)); });
})
SIM_CANN_OPERATOR(ForeachLerpScalar, [](Tensors in, Tensors end, Scalar weight, Outs outs) {
  each(in, outs, [&](const Tensor& t, size_t i) { return at::lerp(t, end.at(i), weight); });
})

#define SIM_CANN_FOREACH_TERNARY(NAME, FUNCTION)                                                                        \
  SIM_CANN_OPERATOR(Foreach##NAME##ScalarV2, [](Tensors in, Tensors a, Tensors b, Scalar value, Outs outs) {            \
    each(in, outs, [&](const Tensor& t, size_t i) { return at::FUNCTION(t, a.at(i), b.at(i), value); });                \
  })                                                                                                                    \
  SIM_CANN_OPERATOR(Foreach##NAME##ScalarList, [](Tensors in, Tensors a, Tensors b, Numbers numbers, Outs outs) {       \
    each(in, outs, [&](const Tensor& t, size_t i) { return at::FUNCTION(t, a.at(i), b.at(i), numbers.values.at(i)); }); \
  })
SIM_CANN_FOREACH_TERNARY(Addcmul, addcmul)
SIM_CANN_FOREACH_TERNARY(Addcdiv, addcdiv)

// ---- Loss scaling ----

SIM_CANN_OPERATOR(ForeachNonFiniteCheckAndUnscale, [](Outs gradients, Out found, Tensor inverse_scale) {
  Tensors tensors(gradients.begin(), gradients.end());
  Tensor any = found;
  at::_amp_foreach_non_finite_check_and_unscale_(tensors, any, inverse_scale);
})
SIM_CANN_OPERATOR(AmpUpdateScale,
                  [](Tensor, Tensor, Tensor found, double growth, double backoff, int64_t interval, Out scale, Out tracker) {
                    Tensor to = scale, steps = tracker;
                    at::_amp_update_scale_(to, steps, found, growth, backoff, interval);
                  })

// ---- Optimizers ----

// `step` is the number of earlier steps. For every dtype, the arithmetic is in fp32 and each result is rounded once.
SIM_CANN_OPERATOR(ApplyAdamWV2, [](Out parameter, Out mean, Out square, Out largest, Tensor gradient, Tensor step, float rate, float beta1,
                                   float beta2, float decay, float eps, bool amsgrad, bool maximize) {
  const auto in_fp32 = [](const Tensor& t) { return t.to(at::kFloat); };
  const Tensor g = maximize ? -in_fp32(gradient) : in_fp32(gradient);
  const double t = step.item<double>() + 1;
  const Tensor m = at::lerp(in_fp32(mean), g, 1 - static_cast<double>(beta1));
  const Tensor v = in_fp32(square) * beta2 + g * g * (1 - static_cast<double>(beta2));
  Tensor bound = v;
  if (amsgrad) largest = bound = at::maximum(in_fp32(largest), v);
  const Tensor denominator = bound.sqrt() / std::sqrt(1 - std::pow(static_cast<double>(beta2), t)) + eps;
  parameter = in_fp32(parameter) * (1 - static_cast<double>(rate) * decay) -
              m / denominator * (static_cast<double>(rate) / (1 - std::pow(static_cast<double>(beta1), t)));
  mean = m;
  square = v;
})
// Exists only on chips with bf16, as documented. `gradients` change only if there is a scale.
SIM_CANN_OPERATOR(FusedSgd, [](Outs parameters, Outs gradients, Outs momenta, Tensor scale, float decay, float momentum, float rate,
                               float dampening, bool nesterov, bool maximize, bool first) {
  TORCH_CHECK(soc().has_bf16, soc().name, " has no such operator");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor value = parameters[i].get().to(at::kFloat);
    Tensor g = gradients[i].get().to(at::kFloat);
    if (scale.defined()) gradients[i] = g = g / scale;
    if (maximize) g = -g;
    if (decay != 0) g = g + value * decay;
    if (!momenta.empty()) {
      const Tensor m = first ? g : momenta[i].get().to(at::kFloat) * momentum + g * (1 - dampening);
      momenta[i] = m;
      g = nesterov ? g + m * momentum : m;
    }
    parameters[i] = value - g * rate;
  }
})
