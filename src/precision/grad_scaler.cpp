#include "npu_train/precision/grad_scaler.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "npu_train/core/error.hpp"
#include "npu_train/precision/finite_check.hpp"
#include "precision/scaler_state.hpp"

namespace npu_train {
namespace {
constexpr const char* kGradScaler = "GradScaler";

// Optimizers whose gradients a scaler of this process has unscaled in an iteration that has not ended. Each entry refers weakly to the
// scaler's overflow flag of that iteration. It expires when update() or the scaler's destructor releases the flag.
class Unscaled {
 public:
  // Error(Usage) if the optimizer is listed, because its gradients would be divided twice.
  void check_free(const void* optimizer) {
    const std::lock_guard lock(mutex_);
    const auto found = flags_.find(optimizer);
    if (found == flags_.end() || found->second.expired()) return;
    throw Error(ErrorKind::Usage, kGradScaler,
                "another GradScaler has unscaled the gradients of this optimizer, and they would be divided twice",
                "use one scaler for all losses of an optimizer, or call update() of the other one first");
  }
  void add(const void* optimizer, const at::Tensor& flag) {
    const std::lock_guard lock(mutex_);
    std::erase_if(flags_, [](const auto& entry) { return entry.second.expired(); });
    flags_.insert_or_assign(optimizer, Flag(flag.getIntrusivePtr()));
  }

 private:
  using Flag = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  std::mutex mutex_;
  std::map<const void*, Flag> flags_;
};

Unscaled& unscaled() {
  static Unscaled all;
  return all;
}
}  // namespace

GradScaler::GradScaler(LossScaleOptions options, bool enabled, Agree agree)
    : scale_(options), enabled_(enabled), agree_(std::move(agree)) {}

// Keeps one tensor for each device of losses and gradients, because the overflow flags of these devices must be cleared.
void GradScaler::know_device_of(const at::Tensor& t, bool clear) const {
  const auto same = [&](const at::Tensor& other) { return other.device() == t.device(); };
  if (std::any_of(places_.begin(), places_.end(), same)) return;
  places_.push_back(at::zeros({}, t.options().dtype(at::kFloat).requires_grad(false)));
  if (clear) clear_overflow_flags({places_.back()});
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  if (!enabled_) return loss;
  check(loss.defined(), ErrorKind::Usage, kGradScaler, "scale() was given an undefined tensor; allowed: a loss");
  know_device_of(loss, /*clear=*/true);  // clears overflows from before the first iteration
  return detail::times_scale(loss, scale_.scale());
}

// Requires an Agree for slices: without it, one rank could step while another one skips.
void GradScaler::check_agreement(const ParameterSet& updated) const {
  if (agree_) return;
  for (const auto& p : updated)
    check(p.value.numel() == p.whole().numel(), ErrorKind::Usage, kGradScaler, p.name, " is a slice of ", p.value.numel(), " of ",
          p.whole().numel(),
          " elements: ranks that have the rest must skip the same steps; hint: DistributedTraining, or an Agree that takes "
          "the largest found_inf of all ranks");
}

void GradScaler::unscale(const void* optimizer, const std::vector<at::Tensor>& gradients) {
  const auto found = optimizers_.find(optimizer);
  if (found != optimizers_.end())
    throw Error(ErrorKind::Usage, kGradScaler,
                found->second.stepped ? "unscale_() was called after step() for this optimizer"
                                      : "unscale_() was called twice for this optimizer since the last update()",
                "call update() at the end of every iteration");
  unscaled().check_free(optimizer);
  for (const auto& g : gradients)
    check(g.scalar_type() != at::kHalf, ErrorKind::Usage, kGradScaler,
          "a gradient is fp16: what the scale is to save would be lost again; keep the parameters in fp32 and use Autocast");
  for (const auto& g : gradients) know_device_of(g, /*clear=*/false);
  PerOptimizer own;
  if (!gradients.empty()) {
    own.found_inf = translated(kGradScaler, [&] { return unscale_and_check(gradients, detail::inverse_scale(scale_.scale())); });
    if (agree_) agree_(own.found_inf);
    unscaled().add(optimizer, own.found_inf);
  }
  optimizers_[optimizer] = own;
}

bool GradScaler::is_unscaled(const void* optimizer) const {
  const auto found = optimizers_.find(optimizer);
  if (found == optimizers_.end()) return false;
  check(!found->second.stepped, ErrorKind::Usage, kGradScaler,
        "step() was called twice for this optimizer since the last update(); call update() at the end of every iteration");
  return true;
}

bool GradScaler::begin_step(const void* optimizer) {
  auto& own = optimizers_.at(optimizer);
  if (!own.found_inf.defined()) {
    optimizers_.erase(optimizer);
    throw Error(ErrorKind::Usage, kGradScaler, "none of the optimizer's parameters has a gradient",
                "call scale(loss).backward() before step()");
  }
  own.found = own.found_inf.item<float>() != 0;
  own.known = own.stepped = true;
  return own.found;
}

void GradScaler::update() {
  if (!enabled_) return;
  const auto checked = [](const auto& entry) { return entry.second.found_inf.defined(); };
  check(std::any_of(optimizers_.begin(), optimizers_.end(), checked), ErrorKind::Usage, kGradScaler,
        "update() without a step() or unscale_() of gradients since the last one");
  bool found = false;
  for (const auto& [key, own] : optimizers_)
    if (own.found_inf.defined()) found |= own.known ? own.found : own.found_inf.item<float>() != 0;
  scale_.update(found);
  optimizers_.clear();
  clear_overflow_flags(places_);
}

void GradScaler::update(double new_scale) {
  if (!enabled_) return;
  check(new_scale > 0 && new_scale <= std::numeric_limits<float>::max(), ErrorKind::Usage, kGradScaler, "new_scale is ", new_scale,
        "; it must be positive and finite");
  auto state = scale_.state();
  state.scale = new_scale;
  scale_.load_state(state);
  optimizers_.clear();
  clear_overflow_flags(places_);
}

State GradScaler::state() const { return enabled_ ? detail::to_state(scale_.state()) : State{}; }

void GradScaler::load_state(const State& state) {
  if (enabled_) scale_.load_state(detail::loss_scale_state(state, kGradScaler));
}

}  // namespace npu_train
