#include "npu_train/train/report.hpp"

namespace npu_train {

double scalar_or(const Scalars& scalars, const std::string& name, double otherwise) {
  for (const auto& [key, value] : scalars)
    if (key == name) return value;
  return otherwise;
}

Scalars StepReport::measured() const {
  if (empty) return metrics;
  Scalars out;
  for (size_t i = 0; i < metrics.size(); ++i)
    if (i >= counts.size() || counts[i] != 0) out.push_back(metrics[i]);
  return out;
}

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::MaxEpochs:
      return "trainer.max_epochs reached";
    case StopReason::MaxSteps:
      return "trainer.max_steps reached";
    case StopReason::MaxTime:
      return "trainer.max_time reached";
    case StopReason::EarlyStopping:
      return "early stopping: no improvement";
    case StopReason::Requested:
      return "stop requested";
    case StopReason::FastDevRun:
      return "fast_dev_run done";
  }
  return "unknown";
}

}  // namespace npu_train
