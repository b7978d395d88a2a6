#include "train/overflow_forensics.hpp"

#include <ATen/core/grad_mode.h>

#include "npu_train/dist/offload.hpp"
#include "npu_train/precision/finite_check.hpp"

namespace npu_train::detail {

OverflowForensics::OverflowForensics(Task& task, const ParameterSet& parameters, Precision& precision, Optimizer& optimizer,
                                     Strategy& strategy, const StepOptions& options, bool may_skip, KeptBuffers& buffers,
                                     std::function<Batch(const Batch&)> bring)
    : task_(task),
      parameters_(parameters),
      precision_(precision),
      optimizer_(optimizer),
      strategy_(strategy),
      report_to_(options.on_overflow),
      detect_anomaly_(options.detect_anomaly),
      may_skip_(may_skip),
      last_skip_(options.last_skip),
      buffers_(buffers),
      bring_(std::move(bring)) {}

// Returns false with sharded parameters: each rank replays its own batches, but all ranks would have to run each layer together.
bool OverflowForensics::watches() const { return report_to_ && !strategy_.shards_parameters() && (may_skip_ || detect_anomaly_); }

at::Device OverflowForensics::device() const { return on_device(strategy_, optimizer_.parameters())[0].value.device(); }

void OverflowForensics::begin() {
  if (!watches()) return;
  if (!may_skip_) clear_overflow_flags(parameters_.values());  // with skips, precision_ clears the flags
  random_ = RandomState({device()});
}

void OverflowForensics::look_at_gradients(const std::vector<Batch>& window, double full_weight, int64_t attempt) {
  if (!watches() || may_skip_) return;
  const bool found = unscale_and_check(optimizer_.parameters(), 1, {device()}).item<float>() != 0;
  if (!(strategy_.shards() ? strategy_.ranks().any(found) : found)) return;
  const auto after = buffers_.buffers();
  std::vector<at::Tensor> values;
  for (const auto& [name, buffer] : after) values.push_back(buffer.detach().clone());
  buffers_.restore();
  explain(window, full_weight, attempt, 0);
  for (size_t i = 0; i < values.size(); ++i) after[i].second.data().copy_(values[i]);
}

void OverflowForensics::end(bool taken, const std::vector<Batch>& window, double full_weight, int64_t attempt) {
  if (taken) {
    taken_one_ = true;
    explained_ = false;
    return;
  }
  const int64_t streak = precision_.skip_streak() + 1;  // this step included
  if (!watches() || !is_due(streak)) return;
  parameters_.zero_grad();  // the replay needs their memory, and the gradients are not used again
  explain(window, full_weight, attempt, streak);
  explained_ = true;
}

bool OverflowForensics::is_due(int64_t streak) const {
  constexpr int64_t kInARow = 3, kInARowAtStart = 16;
  const bool last = last_skip_ > 0 && streak >= last_skip_ && precision_.at_floor();
  return streak == (detect_anomaly_ ? 1 : taken_one_ ? kInARow : kInARowAtStart) || (last && !explained_);
}

void OverflowForensics::explain(const std::vector<Batch>& window, double full_weight, int64_t attempt, int64_t streak) {
  if (window.empty()) return;  // the overflow is in other ranks' windows, and they explain it
  const at::AutoGradMode recording(true);
  std::vector<Batch> here;
  for (const auto& batch : window) here.push_back(bring_(batch));
  auto report = explain_overflow(task_, precision_,
                                 {.window = &here,
                                  .random = random_,
                                  .restore_buffers = [this] { buffers_.restore(); },
                                  .attempt = attempt,
                                  .full_weight = full_weight,
                                  .micro_batch_number = [this](int64_t k) { return strategy_.ranks().micro_batch_number(k); }});
  report.skip_streak = streak;
  report_to_(report);
}

}  // namespace npu_train::detail
