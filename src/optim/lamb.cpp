#include "npu_train/optim/optimizers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "optim/gradient_squares.hpp"
#include "optim/options.hpp"

namespace npu_train {
namespace {

// Copies a new value into the state unless the device skips the step. The new values of all states must be computed, in separate tensors,
// before the first copy.
void replace(const at::Tensor& target, const at::Tensor& value, const at::Tensor& skip) {
  target.copy_(skip.defined() ? at::where(skip, target, value) : value);
}

}  // namespace

const ConfigTable<LambOptions>& LambOptions::config_table() {
  using T = LambOptions;
  static const auto table = ConfigTable<T>("optimizer lamb")
                                .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
                                .field("betas", &T::betas, "decay of the mean of gradients and of their squares", between(0, 1))
                                .field("eps", &T::eps, "keeps the division finite", at_least(0))
                                .field("weight_decay", &T::weight_decay, "added to the update before its norm is taken", at_least(0))
                                .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Lamb::Lamb(ParameterSet parameters, LambOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_adam_options("lamb", options_);
  add_slot("exp_avg", SlotKind::Wide);
  add_slot("exp_avg_sq", SlotKind::Wide);
  add_slot("step", SlotKind::Number);
}

// New state and direction of a parameter, before the norms are known. `value` and `update` have the dtype of the computation.
struct Lamb::Move {
  at::Tensor value, update, mean, square, step;
};

Lamb::Move Lamb::move(const Bucket& b, size_t i) const {
  const double beta1 = options_.betas[0], beta2 = options_.betas[1];
  const auto in = b.parameters[i].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;  // fp32 for low-precision parameters
  Move m{.value = b.parameters[i].detach().to(in), .update = {}, .mean = {}, .square = {}, .step = b.slots[detail::kStep][i] + 1};
  const auto g = b.gradients[i].to(in), t = m.step.to(in);
  m.mean = at::lerp(b.slots[detail::kMean][i].to(in), g, 1 - beta1);
  m.square = at::lerp(b.slots[detail::kSquare][i].to(in), g * g, 1 - beta2);
  m.update = (m.mean / detail::bias_correction(beta1, t)).div_((m.square / detail::bias_correction(beta2, t)).sqrt_().add_(options_.eps));
  if (const double decay = b.decay(options_.weight_decay); decay != 0) m.update.add_(m.value, decay);
  return m;
}

void Lamb::apply(Bucket& b, size_t i, Move& m, const at::Tensor& weight_norm, const at::Tensor& update_norm) const {
  const at::Tensor skip = b.found_inf.defined() ? b.found_inf.ne(0) : at::Tensor();
  const auto trust = at::where((weight_norm > 0).logical_and(update_norm > 0), weight_norm / update_norm, 1.0);
  replace(b.parameters[i], m.value - m.update.mul_(trust).mul_(b.lr), skip);
  replace(b.slots[detail::kMean][i], m.mean, skip);
  replace(b.slots[detail::kSquare][i], m.square, skip);
  replace(b.slots[detail::kStep][i], m.step, skip);
}

at::Tensor Lamb::squares(const at::Tensor& parameter, const at::Tensor& tensor) {
  return detail::squared_norm({detail::in_memory_order(parameter, tensor)}, parameter.device()).parts;
}

void Lamb::update(Bucket& b) {
  const bool slices = std::any_of(parameters().begin(), parameters().end(), [](const Parameter& p) { return p.is_slice(); });
  check(!slices || norm_reduction(), ErrorKind::Usage, "lamb",
        "needs the norms of complete parameters, and has slices; hint: set_norm_reduction(), with GradientReducer::add_over_ranks");
  std::vector<Move> moves;
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < b.parameters.size(); ++i) {
    auto m = move(b, i);
    if (!norm_reduction()) {
      const auto norm = [&](const at::Tensor& of) {
        return of.is_cpu() ? norm_of({.parts = squares(b.parameters[i], of), .dtype = of.scalar_type()}) : at::linalg_vector_norm(of);
      };
      apply(b, i, m, norm(m.value), norm(m.update));
      continue;
    }
    parts.push_back(squares(b.parameters[i], m.value));
    parts.push_back(squares(b.parameters[i], m.update));
    moves.push_back(std::move(m));
  }
  if (moves.empty()) return;
  auto all = at::stack(parts);
  norm_reduction()(all);
  for (size_t i = 0; i < moves.size(); ++i) {
    const auto norm = [&](size_t k) {
      return norm_of({.parts = all[static_cast<int64_t>(2 * i + k)], .dtype = moves[i].value.scalar_type()});
    };
    apply(b, i, moves[i], norm(0), norm(1));
  }
}

}  // namespace npu_train
