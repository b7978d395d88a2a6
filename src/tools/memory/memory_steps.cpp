#include "memory_steps.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "npu_train/device/transfer.hpp"
#include "npu_train/train/passes.hpp"

namespace npu_train::detail {
namespace {

Batch bring(const Observers& observers, const Batch& batch, const Device& device, size_t k) {
  return observers.run(Phase::Transfer, 0, static_cast<int>(k), [&] { return to_device(batch, device); });
}

void evaluate_again(Task& task, Precision& precision, const Device& device, Pass pass, const std::vector<Batch>& batches,
                    const Observers& observers) {
  struct Evaluating {
    explicit Evaluating(Task& evaluated) : task(evaluated) { task.set_training(false); }
    ~Evaluating() { task.set_training(true); }
    Task& task;
    at::NoGradGuard no_grad;
  } evaluating(task);
  for (size_t k = 0; k < batches.size(); ++k) {
    const auto here = bring(observers, batches[k], device, k);
    observers.run(Phase::Validation, 0, static_cast<int>(k), [&] {
      const auto scope = precision.forward_scope();
      if (pass == Pass::Prediction)
        task.forward(precision.cast_input(here));
      else
        checked_metric_sums(task, validation_output(task, precision, here), here);
    });
  }
}

}  // namespace

Batch rows_of(const Batch& given, int64_t count) {
  const auto batch = given.finished();
  const auto rows = batch.rows();
  Batch out = batch;
  std::vector<Batch> single;
  for (int64_t i = 0; i < count; ++i) single.push_back(batch.narrow(i % rows, 1));
  size_t field = 0;
  for (const auto& [name, whole] : batch.fields()) {
    const auto at = field++;
    if (whole.dim() == 0 || whole.size(0) != rows) continue;
    std::vector<at::Tensor> pieces;
    for (const auto& one : single) pieces.push_back(one.fields()[at].second);
    out.set(name, at::cat(pieces));
  }
  out.size = count;
  out.weight = static_cast<double>(count);
  return out;
}

void run_again(Task& task, Precision& precision, const Device& device, Pass pass, const std::vector<Batch>& batches,
               MemoryRecorder& recorder, bool on_host) {
  Observers observers;
  observers.add(&recorder);
  if (pass != Pass::Training) return evaluate_again(task, precision, device, pass, batches, observers);
  if (on_host) return run_window(task, precision, batches, observers, [&](const Batch& batch) { return to_device(batch, device); });
  std::vector<Batch> window;
  for (size_t k = 0; k < batches.size(); ++k) window.push_back(bring(observers, batches[k], device, k));
  run_window(task, precision, window, observers);
}

}  // namespace npu_train::detail
