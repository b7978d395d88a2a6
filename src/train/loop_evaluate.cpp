// Validation and prediction: the model in evaluation mode.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "loop_impl.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/device/transfer.hpp"

namespace npu_train {

/// Evaluation mode, without gradients and with the EMA's weights where there are any; undone at the end.
struct TrainLoop::Evaluation {
  explicit Evaluation(const LoopParts& parts) : task(*parts.task) {
    if (parts.ema != nullptr && parts.ema->updates() > 0) averaged.emplace(*parts.ema);
    task.set_training(false);
  }
  ~Evaluation() { task.set_training(true); }
  at::NoGradGuard no_grad;
  Task& task;
  std::optional<EmaSwap> averaged;
};

/// Sums over the batches of a validation, on the device.
struct TrainLoop::ValidationSums {
  at::Tensor packed;  // loss, then the task's metrics
  double weight = 0, samples = 0;
};

at::Tensor TrainLoop::predict(const at::Tensor& input) {
  return translated("Trainer::predict", [&] {
    failed_.reset();
    const Evaluation evaluation(parts_);
    Batch batch;
    batch.set("input", input);
    auto phase = Phase::Transfer;
    try {
      const auto here = parts_.precision->cast_input(to_device(batch, parts_.device));
      phase = Phase::Forward;
      const auto scope = parts_.precision->forward_scope();
      return parts_.task->predict(here.input()).to(at::kCPU, at::kFloat);
    } catch (...) {
      note_out_of_memory({.batches = {batch}, .phase = phase, .pass = Pass::Prediction});
      throw;
    }
  });
}

void TrainLoop::validate_batch(const Batch& batch, Phase& phase, ValidationSums& sums) {
  phase = Phase::Transfer;
  const auto here = to_device(batch, parts_.device);
  phase = Phase::Forward;
  const auto scope = parts_.precision->forward_scope();
  const auto output = parts_.task->validation_step(parts_.precision->cast_input(here));
  check_output(output, "Trainer::validate");
  auto packed = (output.loss.detach().to(at::kFloat) * output.weight).reshape({1});
  if (const auto metrics = checked_metric_sums(*parts_.task, output, here); metrics.defined()) packed = at::cat({packed, metrics});
  sums.packed = sums.packed.defined() ? sums.packed.add_(packed) : packed;
  sums.weight += output.weight;
  sums.samples += static_cast<double>(here.size);
}

Scalars TrainLoop::evaluate(Loader& loader, int64_t limit) {
  return run_validation(loader, limit, Pass::Validation, /*stoppable=*/false).value();
}

/// nullopt: a stop was requested before the end.
std::optional<Scalars> TrainLoop::run_validation(Loader& loader, int64_t limit, Pass pass, bool stoppable) {
  return translated("Trainer::validate", [&]() -> std::optional<Scalars> {
    failed_.reset();
    const Evaluation evaluation(parts_);
    const bool overfit = options_.overfit_batches > 0 && &loader == parts_.val_loader;
    if (overfit) fill_overfit();
    ValidationSums sums;
    auto total = overfit ? std::optional(static_cast<int64_t>(overfit_.size())) : loader.batches_per_epoch();
    if (limit >= 0) total = std::min(total.value_or(limit), limit);
    if (!overfit) loader.begin_epoch(0);
    for (int64_t k = 0; limit < 0 || k < limit; ++k) {
      const auto batch = !overfit                                    ? loader.next()
                         : k < static_cast<int64_t>(overfit_.size()) ? std::optional(overfit_[static_cast<size_t>(k)])
                                                                     : std::nullopt;
      if (!batch) break;
      if (stoppable && parts_.stop->load(std::memory_order_relaxed)) return std::nullopt;
      auto phase = Phase::Transfer;
      try {
        validate_batch(*batch, phase, sums);
      } catch (...) {
        note_out_of_memory({.batches = {*batch}, .phase = phase, .micro_batch = static_cast<int>(k), .pass = pass});
        throw;
      }
      if (pass == Pass::Validation)
        for (const auto& c : callbacks_) c->on_validation_batch(*this, k + 1, total);
    }
    check(sums.packed.defined(), ErrorKind::Data, "Trainer::validate", "the validation data gave no batch");
    const auto host = sums.packed.to(at::kCPU, at::kFloat).contiguous();
    Scalars out{{"loss", host.const_data_ptr<float>()[0] / sums.weight}};
    const auto names = parts_.task->metric_names();
    for (size_t i = 0; i < names.size(); ++i) out.emplace_back(names[i], host.const_data_ptr<float>()[i + 1] / sums.samples);
    return out;
  });
}

Scalars TrainLoop::validate() { return validate_weights(/*stoppable=*/false).value(); }

std::optional<Scalars> TrainLoop::validate_weights(bool stoppable) {
  check(parts_.val_loader != nullptr, ErrorKind::Usage, "Trainer::validate", "there is no validation data");
  const auto limit = options_.fast_dev_run ? 1 : options_.limit_val_batches;
  auto metrics = observers_.run(Phase::Validation, step_->attempts(), 0,
                                [&] { return run_validation(*parts_.val_loader, limit, Pass::Validation, stoppable); });
  if (!metrics) return metrics;
  last_val_ = *metrics;
  validated_step_ = global_step_;
  call_back([&](Callback& c) { c.on_validation_end(*this, last_val_); });
  return metrics;
}

}  // namespace npu_train
