#include "train/window_pass.hpp"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/train/passes.hpp"

namespace npu_train::detail {

StepOutput training_output(Task& task, const Precision& precision, const Batch& batch, uint64_t draw_key,
                           std::shared_ptr<const ForwardContext::Ranks> ranks) {
  const auto scope = precision.forward_scope();
  const ForwardContext context(precision.cast_input(batch), draw_key, std::move(ranks));
  auto output = translated("Task", ErrorKind::Usage, [&] { return task.training_step(context); });
  check_output(output, "TrainStep");
  return output;
}

StepOutput validation_output(Task& task, const Precision& precision, const Batch& batch) {
  auto output = translated("Task", ErrorKind::Usage, [&] { return task.validation_step(precision.cast_input(batch)); });
  check_output(output, "Trainer::validate");
  return output;
}

void run_window(Task& task, Precision& precision, const std::vector<Batch>& window, const Observers& observers,
                const std::function<Batch(const Batch&)>& bring) {
  SingleDeviceStrategy alone;
  WindowPass pass(task, precision, alone, observers, {.bring = bring}, task.parameters());
  pass.begin(window.size(), /*attempt=*/0);
  pass.run(window, /*full_weight=*/0);
}

WindowPass::WindowPass(Task& task, Precision& precision, Strategy& strategy, const Observers& observers, const StepOptions& options,
                       const ParameterSet& computed)
    : task_(task),
      precision_(precision),
      strategy_(strategy),
      observers_(observers),
      bring_(options.bring),
      options_of_sums_(at::TensorOptions().dtype(at::kFloat).device(computed[0].value.device())),
      statistics_(task, strategy, options.sync_batchnorm) {}

void WindowPass::begin(size_t micro_batches, int64_t attempt) {
  attempt_ = attempt;
  phase_ = Phase::Transfer;
  micro_batch_ = 0;
  statistics_.begin_window(static_cast<int64_t>(micro_batches));
}

WindowSums WindowPass::run(const std::vector<Batch>& window, double full_weight, const at::Tensor& scale) {
  WindowSums sums{.micro_batches = static_cast<int64_t>(window.size()), .full_weight = full_weight, .sums = {}};
  for (size_t k = 0; k < window.size(); ++k) {
    micro_batch_ = static_cast<int>(k);
    accumulate(window[k], sums, scale);
  }
  if (window.empty()) take_part(sums);
  for (auto k = sums.micro_batches; k < statistics_.rounds(); ++k) end_micro_batch();
  return sums;
}

bool WindowPass::must_bring(const Batch& batch) const {
  const auto& fields = batch.fields();
  return bring_ &&
         std::any_of(fields.begin(), fields.end(), [&](const auto& field) { return field.second.device() != options_of_sums_.device(); });
}

StepOutput WindowPass::forward(const Batch& batch, uint64_t draw_key) {
  StepOutput output;
  run_phase(Phase::Forward, micro_batch_, [&] {
    strategy_.begin_forward(true);
    statistics_.collect([&] { output = training_output(task_, precision_, batch, draw_key, statistics_.ranks()); });
  });
  observers_.show_loss(output.loss, attempt_, micro_batch_);
  return output;
}

void WindowPass::accumulate(const Batch& given, WindowSums& window, const at::Tensor& scale) {
  const PortableRandom::MicroBatch draws("training", attempt_, strategy_.ranks().micro_batch_number(micro_batch_));
  const auto batch = must_bring(given) ? run_phase(Phase::Transfer, micro_batch_, [&] { return bring_(given); }) : given;
  observers_.show_batch(batch, attempt_, micro_batch_);
  const auto output = forward(batch, draws.key());
  if (window.full_weight == 0) {
    const auto sum = strategy_.ranks().sum(output.weight * static_cast<double>(window.micro_batches));
    window.full_weight = sum > 0 ? sum : 1;
  }
  const auto loss = share_of_window(output, window.full_weight);
  phase_ = Phase::Backward;
  statistics_.begin_backward(output.weight > 0);
  if (output.weight > 0)
    run_phase(Phase::Backward, micro_batch_, [&] {
      strategy_.backward(scale.defined() ? loss * scale : precision_.scale_loss(loss), micro_batch_ + 1 == window.micro_batches);
      precision_.collect_gradients();
    });
  end_micro_batch();

  const at::NoGradGuard no_grad;
  const auto metrics = checked_metric_sums(task_, output, batch);
  auto sums = output.weight > 0 ? loss.detach().to(at::kFloat).reshape({1}) : at::zeros({1}, loss.options().dtype(at::kFloat));
  if (metrics.defined()) sums = at::cat({sums, metrics});
  window.sums = window.sums.defined() ? window.sums.add_(sums) : sums;
  window.weight += output.weight;
  window.samples += static_cast<double>(batch.size);
}

// Ends a micro-batch. If passes wait for other ranks, all ranks are in the same micro-batch.
void WindowPass::end_micro_batch() {
  if (!statistics_.waits()) return;
  statistics_.end_micro_batch();
  strategy_.end_micro_batch();
}

// Takes part in the window of the other ranks, without a batch of its own.
void WindowPass::take_part(WindowSums& window) {
  check(window.full_weight > 0 || !statistics_.waits(), ErrorKind::Usage, "TrainStep",
        "with sync_batchnorm, or a task that compares samples across ranks, a window without a batch on this rank needs the weight of a "
        "full window; hint: pass full_weight");
  if (window.full_weight == 0) window.full_weight = strategy_.ranks().sum(0);
  window.sums = at::zeros({1 + 2 * static_cast<int64_t>(task_.metric_names().size())}, options_of_sums_);
}

}  // namespace npu_train::detail
