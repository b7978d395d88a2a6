#include "npu_train/train/step.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/dist/offload.hpp"
#include "train/kept_buffers.hpp"
#include "train/overflow_forensics.hpp"
#include "train/update.hpp"
#include "train/window_graph.hpp"
#include "train/window_pass.hpp"

namespace npu_train {

TrainStep::TrainStep(Task& task, Precision& precision, Optimizer& optimizer, WeightAverage* average, Strategy& strategy,
                     const Observers& observers, StepOptions options)
    : task_(task),
      parameters_(options.parameters ? options.parameters : std::make_shared<const ParameterSet>(task.parameters())),
      precision_(precision),
      optimizer_(optimizer),
      average_(average),
      strategy_(strategy),
      observers_(observers),
      options_(options),
      may_skip_(precision.may_skip()) {
  check(options_.clip_value >= 0 && std::isfinite(options_.clip_value) && options_.last_skip >= 0, ErrorKind::Usage, "TrainStep",
        "clip_value is ", options_.clip_value, " and last_skip ", options_.last_skip, "; allowed: finite numbers of at least 0");
  buffers_ = std::make_unique<detail::KeptBuffers>(task_);
  update_ = std::make_unique<detail::Update>(precision_, optimizer_, strategy_, options_.clip_value, options_.clip_by_norm);
  const auto& computed = on_device(strategy_, optimizer_.parameters());
  pass_ = std::make_unique<detail::WindowPass>(task_, precision_, strategy_, observers_, options_, computed);
  forensics_ =
      std::make_unique<detail::OverflowForensics>(task_, *parameters_, precision_, optimizer_, strategy_, options_, may_skip_, *buffers_,
                                                  [pass = pass_.get()](const Batch& batch) { return pass->brought(batch); });
  if (options_.graphs && strategy_.capturable())
    graph_ = std::make_unique<detail::WindowGraph>(device_of(computed[0].value.device()), *parameters_, task_.buffers(), computed);
}

TrainStep::TrainStep(TrainStep&&) noexcept = default;
TrainStep::~TrainStep() = default;

Phase TrainStep::phase() const { return pass_->phase(); }
int TrainStep::micro_batch() const { return pass_->micro_batch(); }

// Computes without a graph if observers are active: they see the operators and phases of micro-batches, which a replayed graph does not
// have.
detail::WindowSums TrainStep::forward_backward(const std::vector<Batch>& window, double full_weight) {
  const auto eagerly = [&](const std::vector<Batch>& batches, const at::Tensor& scale) {
    detail::WindowSums sums;
    buffers_->check_first(!batches.empty(), [&] { sums = pass_->run(batches, full_weight, may_skip_ ? scale : at::Tensor()); });
    return sums;
  };
  if (graph_ == nullptr || !observers_.empty()) return eagerly(window, {});
  return graph_->run(window, full_weight, precision_.scale(), eagerly);
}

template <class Fn>
decltype(auto) TrainStep::run_phase(Phase phase, Fn&& fn) {
  return pass_->run_phase(phase, 0, std::forward<Fn>(fn));
}

void TrainStep::set_attempts(int64_t attempts) {
  attempts_ = attempts;
  forensics_->set_taken_one(attempts > 0);
}

void TrainStep::begin_window(const std::vector<Batch>& window, double full_weight) {
  check(full_weight >= 0 && std::isfinite(full_weight), ErrorKind::Usage, "TrainStep", "full_weight is ", full_weight,
        "; it must be positive, or 0 to take it from the first batch");
  start_kept_ = false;
  pass_->begin(window.size(), attempts_);  // first, so that phase() belongs to this window even if a copy below runs out of memory
  optimizer_.zero_grad();                  // removes gradients that the host program or a window that threw has left
  parameters_->zero_grad();
  if (may_skip_ || forensics_->watches() || options_.keep_start) buffers_->keep();
  start_kept_ = true;
  forensics_->begin();
  precision_.begin_step();
  strategy_.begin_window(static_cast<int64_t>(window.size()));
  if (auto* errors = strategy_.error_feedback()) errors->set_gradient_scale(precision_.scale());
}

StepResult TrainStep::run(const std::vector<Batch>& batches, double full_weight) {
  begin_window(batches, full_weight);
  const auto window = forward_backward(batches, full_weight);  // each loss times its weight / R

  const at::NoGradGuard no_grad;
  const auto total = reduce(window);
  StepAgreement all{.found_inf = {}, .squares = {}, .sums = window.sums};
  if (total.loss == 0) return leave_out(all, total);
  run_phase(Phase::Unscale, [&] { update_->unscale(window.full_weight / total.loss); });  // times R / W
  forensics_->look_at_gradients(batches, window.full_weight, attempts_);
  const auto norm = run_phase(Phase::Clip, [&] { return update_->agree_and_clip(all); });
  run_phase(Phase::Optimizer, [&] { update_->step(); });

  const bool taken = !precision_.last_step_skipped();
  if (!taken) buffers_->restore();
  forensics_->end(taken, batches, window.full_weight, attempts_);
  precision_.update(update_->decision());
  if (taken && average_ != nullptr) average_->update(optimizer_.parameters(), update_->decision());
  auto result = end_window(all, norm, total);
  result.loss_weight = total.loss / window.full_weight;
  result.taken = taken;
  return result;
}

// Reduces the gradients; returns the sums over the ranks.
WindowWeight TrainStep::reduce(const detail::WindowSums& window) {
  const auto total = run_phase(Phase::Reduce, [&] {
    auto all = strategy_.finish_gradients({window.weight, window.samples, static_cast<double>(window.micro_batches)});
    pass_->statistics().apply();
    return all;
  });
  check(total.micro_batches > 0, ErrorKind::Usage, "TrainStep", "a window needs at least one batch, on any rank");
  return total;
}

// Ends a window in which no sample counts. It has no mean loss and no gradient, so parameters, loss scale and averages are unchanged. Ranks
// agree as in a skipped step, so that the error feedback of compressed gradients is unchanged, too.
StepResult TrainStep::leave_out(StepAgreement& all, const WindowWeight& total) {
  all.found_inf = at::ones({}, all.sums.options());
  run_phase(Phase::Clip, [&] { strategy_.agree(all); });
  run_phase(Phase::Optimizer, [&] { strategy_.finish_step(); });
  if (may_skip_) buffers_->restore();
  auto result = end_window(all, {}, total);
  result.taken = false;
  result.empty = true;
  return result;
}

StepResult TrainStep::end_window(const StepAgreement& all, const at::Tensor& norm, const WindowWeight& total) {
  optimizer_.zero_grad();
  ++attempts_;
  return {.packed = at::cat({all.sums, reported(norm, all.sums)}),
          .weight = total.loss,
          .samples = total.samples,
          .micro_batches = static_cast<int64_t>(total.micro_batches)};
}

// Returns the norm for the report, on the device of `sums`; 0 if there is none.
at::Tensor TrainStep::reported(const at::Tensor& norm, const at::Tensor& sums) {
  if (norm.defined()) return norm.to(sums.device(), at::kFloat).reshape({1});
  if (!no_norm_.defined()) no_norm_ = at::zeros({1}, sums.options());
  return no_norm_;
}

void TrainStep::undo_window() {
  const at::NoGradGuard no_grad;
  optimizer_.zero_grad();
  on_device(strategy_, optimizer_.parameters()).zero_grad();
  parameters_->zero_grad();
  if (start_kept_) buffers_->restore();
}

}  // namespace npu_train
