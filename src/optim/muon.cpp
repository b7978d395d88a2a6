#include "npu_train/optim/optimizers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>

#include "npu_train/core/name_pattern.hpp"
#include "optim/each_parameter.hpp"
#include "optim/options.hpp"

namespace npu_train {
namespace {

enum MuonSlots { kMuonMomentum, kMuonMean, kMuonSquare, kMuonStep };

// Coefficients of a quintic whose slope at 0 is as large as possible (Jordan et al.).
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

}  // namespace

const ConfigTable<MuonOptions>& MuonOptions::config_table() {
  using T = MuonOptions;
  static const auto table =
      ConfigTable<T>("optimizer muon")
          .field("lr", &T::lr, "learning rate at schedule factor 1", at_least(0))
          .field("weight_decay", &T::weight_decay, "share of lr by which weights shrink in each step", at_least(0))
          .field("momentum", &T::momentum, "decay of the mean of gradients", between(0, 1))
          .field("nesterov", &T::nesterov, "look ahead along the momentum")
          .field("eps", &T::eps, "least norm of a momentum", more_than(0))
          .field("ns_steps", &T::ns_steps, "Newton-Schulz iterations", between(1, 99))
          .field("adjust_lr_fn", &T::adjust_lr_fn, "how lr depends on the shape of a matrix; match_rms_adamw: lr is as for AdamW",
                 one_of({"original", "match_rms_adamw"}))
          .field("adamw", &T::adamw, "patterns of matrices that AdamW updates, such as [token_embedding, head]")
          .field("betas", &T::betas, "of AdamW", between(0, 1))
          .field("adamw_eps", &T::adamw_eps, "of AdamW", at_least(0))
          .field("no_decay", &T::no_decay, "leave biases and normalisation parameters without weight decay");
  return table;
}

Muon::Muon(ParameterSet parameters, MuonOptions options)
    : Optimizer(std::move(parameters), options.lr, options.no_decay), options_(options) {
  detail::check_at_least_zero("muon", "lr", options.lr);
  detail::check_at_least_zero("muon", "weight_decay", options.weight_decay);
  detail::check_at_least_zero("muon", "adamw_eps", options.adamw_eps);
  detail::check_share("muon", "momentum", options.momentum);
  detail::check_betas("muon", options.betas);
  check(options.eps > 0 && options.ns_steps >= 1 && options.ns_steps < 100, ErrorKind::Usage, "muon", "eps is ", options.eps,
        " and ns_steps ", options.ns_steps, "; eps must be more than 0, and ns_steps from 1 to 99");
  check(options.adjust_lr_fn == "original" || options.adjust_lr_fn == "match_rms_adamw", ErrorKind::Usage, "muon", "adjust_lr_fn is '",
        options.adjust_lr_fn, "'; it must be original or match_rms_adamw");
  std::vector<std::string> names;
  for (const auto& p : this->parameters()) {
    detail::check_complete("muon", p);
    names.push_back(p.name);
  }
  if (!names.empty()) selected_names("muon: adamw", "parameter", options.adamw, names);
  const auto matrix = [this](const Parameter& p) { return is_matrix(p); };
  const auto other = [this](const Parameter& p) { return !is_matrix(p); };
  add_slot("momentum", SlotKind::Wide, 0, matrix);
  add_slot("exp_avg", SlotKind::Wide, 0, other);
  add_slot("exp_avg_sq", SlotKind::Wide, 0, other);
  add_slot("step", SlotKind::Number, 0, other);
}

bool Muon::is_matrix(const Parameter& parameter) const {
  return parameter.value.dim() >= 2 && std::none_of(options_.adamw.begin(), options_.adamw.end(),
                                                    [&](const std::string& pattern) { return parts_match(parameter.name, pattern); });
}

// Returns U S' V^T for a matrix U S V^T, where all singular values in S' are near 1.
at::Tensor Muon::orthogonal(const at::Tensor& matrix, double eps, int64_t steps) {
  const bool high = matrix.size(0) > matrix.size(1);
  at::Tensor x = high ? matrix.t() : matrix;
  x = x / at::linalg_vector_norm(x).clamp_min_(eps);
  for (int64_t i = 0; i < steps; ++i) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
  }
  return high ? x.t() : x;
}

void Muon::update(Bucket& b) {
  const auto& o = options_;
  const double decay = b.decay(o.weight_decay);
  detail::for_each_parameter(b, [&](detail::Element& e) {
    const auto& g = e.gradient;
    if (decay != 0) e.value.mul_(1 - e.lr * decay);
    if (e.state[kMuonMomentum].defined()) {
      e.state[kMuonMomentum].lerp_(g, 1 - o.momentum);
      const at::Tensor step = o.nesterov ? g.lerp(e.state[kMuonMomentum], o.momentum) : e.state[kMuonMomentum];
      const at::Tensor matrix = step.reshape({step.size(0), -1});
      const auto rows = static_cast<double>(matrix.size(0)), columns = static_cast<double>(matrix.size(1));
      const double factor =
          o.adjust_lr_fn == "original" ? std::sqrt(std::max(1.0, rows / columns)) : 0.2 * std::sqrt(std::max(rows, columns));
      e.value.sub_(orthogonal(matrix, o.eps, o.ns_steps).reshape(e.value.sizes()), e.lr * factor);
      return;
    }
    const at::Tensor t = e.state[kMuonStep].add_(1).to(g.scalar_type());
    e.state[kMuonMean].lerp_(g, 1 - o.betas[0]);
    e.state[kMuonSquare].mul_(o.betas[1]).addcmul_(g, g, 1 - o.betas[1]);
    const at::Tensor mean = e.state[kMuonMean] / detail::bias_correction(o.betas[0], t);
    const at::Tensor square = e.state[kMuonSquare] / detail::bias_correction(o.betas[1], t);
    e.value.addcdiv_(mean, square.sqrt().add_(o.adamw_eps), -e.lr);
  });
}

}  // namespace npu_train
