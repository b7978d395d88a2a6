#include "npu_train/optim/optimizers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <limits>

#include "optim/each_parameter.hpp"
#include "optim/options.hpp"

namespace npu_train {
namespace {

enum AdafactorSlots { kRows, kColumns, kVariance, kAdafactorStep };

bool is_factored(const Parameter& parameter) { return parameter.value.dim() >= 2; }

at::Tensor rms(const at::Tensor& t) { return at::linalg_vector_norm(t).div_(std::sqrt(static_cast<double>(t.numel()))); }

}  // namespace

const ConfigTable<AdafactorOptions>& AdafactorOptions::config_table() {
  using T = AdafactorOptions;
  static const auto table =
      ConfigTable<T>("optimizer adafactor")
          .field("lr", &T::lr, "upper bound of the relative step at schedule factor 1", at_least(0))
          .field("beta2_decay", &T::beta2_decay, "the mean of squares forgets t^beta2_decay in step t", {.hi = 0})
          .field("eps", &T::eps, "least root of the mean of squares (0: fp32's epsilon), least norm of the weights", at_least(0))
          .field("d", &T::d, "limit of the update's root mean square", at_least(1))
          .field("weight_decay", &T::weight_decay, "share of lr by which weights shrink in each step", at_least(0))
          .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Adafactor::Adafactor(ParameterSet parameters, AdafactorOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_at_least_zero("adafactor", "lr", options.lr);
  detail::check_at_least_zero("adafactor", "weight_decay", options.weight_decay);
  check(options.eps.size() == 2, ErrorKind::Usage, "adafactor", "eps has ", options.eps.size(), " numbers; it needs 2, such as [0, 0.001]");
  for (const double eps : options.eps) detail::check_at_least_zero("adafactor", "eps", eps);
  check(options.beta2_decay <= 0 && options.d >= 1, ErrorKind::Usage, "adafactor", "beta2_decay is ", options.beta2_decay, " and d ",
        options.d, "; beta2_decay must be at most 0, and d at least 1");
  for (const auto& p : this->parameters()) detail::check_complete("adafactor", p);
  add_slot("row_var", SlotKind::Rows, 0, is_factored);
  add_slot("col_var", SlotKind::Columns, 0, is_factored);
  add_slot("variance", SlotKind::Wide, 0, [](const Parameter& p) { return !is_factored(p); });
  add_slot("step", SlotKind::Number);
}

void Adafactor::update(Bucket& b) {
  const double decay = b.decay(options_.weight_decay);
  detail::for_each_parameter(b, [&](detail::Element& e) {
    const auto& g = e.gradient;
    const at::Tensor step = e.state[kAdafactorStep].add_(1).to(g.scalar_type());
    const at::Tensor forgets = step.pow(options_.beta2_decay);
    const at::Tensor alpha = rms(e.value).clamp_min_(options_.eps[1]).mul_(step.rsqrt().clamp_max_(e.lr));
    if (decay != 0) e.value.mul_(1 - e.lr * decay);
    const double least = options_.eps[0] > 0              ? options_.eps[0]
                         : g.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                          : std::numeric_limits<float>::epsilon();
    at::Tensor square;
    if (e.state[kRows].defined()) {
      const auto mean = [&](int64_t dim) {
        return at::linalg_vector_norm(g, 2, dim, /*keepdim=*/true).square_().div_(static_cast<double>(g.size(dim)));
      };
      e.state[kRows].lerp_(mean(-1), forgets);
      e.state[kColumns].lerp_(mean(-2), forgets);
      square = at::matmul(e.state[kRows], e.state[kColumns]).div_(e.state[kRows].mean(-2, /*keepdim=*/true).clamp_min_(least));
    } else {
      e.state[kVariance].lerp_(g.square(), forgets);
      square = e.state[kVariance].clone();
    }
    const at::Tensor update = square.clamp_min_(least * least).rsqrt_().mul_(g);
    e.value.sub_(update.mul_(alpha.div_(rms(update).div_(options_.d).clamp_min_(1))));
  });
}

}  // namespace npu_train
