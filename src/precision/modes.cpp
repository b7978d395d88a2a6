#include "precision/modes.hpp"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/finite_check.hpp"
#include "npu_train/precision/masters.hpp"
#include "precision/scaler_state.hpp"

namespace npu_train::detail {
namespace {

class AutocastScope final : public PrecisionScope {
 public:
  explicit AutocastScope(const AutocastOptions& o)
      : autocast_(o.device, o.dtype, /*enabled=*/true, /*cache_enabled=*/true, o.cpu, o.fp32_ops) {}

 private:
  Autocast autocast_;
};

}  // namespace

std::unique_ptr<PrecisionScope> MixedPrecision::forward_scope() const { return std::make_unique<AutocastScope>(autocast_); }

void MixedPrecision::begin_step() {
  if (scale_) clear_overflow_flags(updated_.values(), {computes_on_});
}

at::Tensor MixedPrecision::scale_loss(const at::Tensor& loss) const { return scale_ ? times_scale(loss, scale_->scale()) : loss; }

StepDecision MixedPrecision::unscale_and_check(double factor) {
  if (!scale_) return Precision::unscale_and_check(factor);
  found_.reset();
  found_inf_ = npu_train::unscale_and_check(updated_, factor / scale_->scale(), {computes_on_});
  return {.inv_scale = {}, .found_inf = found_inf_};
}

StepDecision MixedPrecision::optimizer_decision(const StepDecision& agreed) {
  auto decision = agreed;
  if (scale_ && !skips_on_device_) decision.found_inf = agreed.found_inf.cpu();
  note(decision);
  return decision;
}

void MixedPrecision::note(const StepDecision& decision) {
  if (!scale_ || decision.found_inf.is_same(found_inf_)) return;
  found_inf_ = decision.found_inf;
  found_.reset();
}

bool MixedPrecision::last_step_skipped() {
  if (!scale_) return false;
  if (!found_) found_ = found_inf_.defined() && found_inf_.item<float>() != 0;
  return *found_;
}

void MixedPrecision::update(const StepDecision& decision) {
  if (!scale_) return;
  note(decision);
  scale_->update(last_step_skipped());
}

State MixedPrecision::state() const { return scale_ ? to_state(scale_->state()) : State{}; }

void MixedPrecision::load_state(const State& state) {
  // A state saved in another precision has no scale; the scale then keeps its initial value.
  if (scale_ && !state.empty()) scale_->load_state(loss_scale_state(state, "scaler"));
}

ParameterSet TruePrecision::prepare(const ParameterSet& model_parameters, const std::vector<std::string>& keep_fp32) {
  check(updated_.empty(), ErrorKind::Usage, "Precision", "prepare() was called twice; make one Precision for each model");
  const auto is_kept = [&](const Parameter& p) {
    if (!p.value.is_floating_point() || modules_.keeps_fp32(p.name)) return true;
    const bool kept = std::find(keep_fp32.begin(), keep_fp32.end(), p.name) != keep_fp32.end();
    return kept && !modules_.casts(layer_of(p.name));
  };
  for (const auto& p : model_parameters)
    check(is_kept(p) || p.value.scalar_type() == at::kFloat, ErrorKind::Usage, "Precision", p.name, " is ", p.value.scalar_type(), "; ",
          name(), " starts from fp32 parameters");
  for (const auto& p : model_parameters) {
    if (is_kept(p)) {
      updated_.add(p);
      continue;
    }
    if (!p.value.requires_grad() || !keeps_masters_) {
      p.value.mutable_grad().reset();
      p.value.set_data(p.value.detach().to(low_precision_dtype()));
      updated_.add(p);
      continue;
    }
    auto master = with_master(p, low_precision_dtype());
    low_.push_back(p.value);
    masters_.push_back(master.value);
    updated_.add(std::move(master));
  }
  updated_.add_aliases_of(model_parameters);
  return updated_;
}

ParameterSet TruePrecision::refresh(const ParameterSet& model_parameters) {
  ParameterSet all;
  std::vector<at::Tensor> low, masters;
  for (const auto& p : model_parameters) {
    auto updated = p;
    if (keeps_masters_ && p.value.scalar_type() == low_precision_dtype() && p.value.requires_grad()) {
      const auto had = std::find_if(low_.begin(), low_.end(), [&](const at::Tensor& t) { return t.is_same(p.value); });
      updated.value =
          had != low_.end() ? masters_[static_cast<size_t>(had - low_.begin())] : p.value.detach().to(at::kFloat).requires_grad_(true);
      updated.computed = p.value;
      low.push_back(p.value);
      masters.push_back(updated.value);
    }
    all.add(std::move(updated));
  }
  all.add_aliases_of(model_parameters);
  low_ = std::move(low);
  masters_ = std::move(masters);
  return Precision::refresh(all);
}

Batch TruePrecision::cast_input(const Batch& batch) const {
  Batch out = batch;
  for (const auto& [name, tensor] : batch.fields())
    if (name.starts_with("input") && tensor.is_floating_point()) out.set(name, tensor.to(low_precision_dtype()));
  return out;
}

void TruePrecision::collect_gradients() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> sums, terms;
  for (size_t i = 0; i < low_.size(); ++i) {
    auto& gradient = low_[i].mutable_grad();
    if (!gradient.defined()) continue;
    if (auto& sum = masters_[i].mutable_grad(); sum.defined()) {
      sums.push_back(sum);
      terms.push_back(gradient);
    } else {
      sum = gradient.to(at::kFloat);
    }
    gradient.reset();
  }
  if (!sums.empty()) at::_foreach_add_(sums, terms);
}

void TruePrecision::after_step(const StepDecision& decision) {
  MixedPrecision::after_step(decision);
  masters_loaded();  // after a skip the masters are unchanged, so rounding gives the same bits again
}

// Returns whether the masters are rounded here. Sharded masters have no memory here; they are rounded where ranks gather parameters.
bool TruePrecision::rounds() const {
  return std::any_of(masters_.begin(), masters_.end(), [](const at::Tensor& master) { return master.storage().nbytes() > 0; });
}

void TruePrecision::masters_loaded() {
  const c10::NoGradGuard no_grad;
  if (rounds()) at::_foreach_copy_(low_, masters_);
}

void TruePrecision::parameters_loaded() {
  const c10::NoGradGuard no_grad;
  if (rounds()) at::_foreach_copy_(masters_, low_);
}

}  // namespace npu_train::detail
